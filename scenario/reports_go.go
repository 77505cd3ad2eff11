package scenario

// goReports are those about libraries in Go, told with the libraries themselves.
var goReports []Report
