package scenario

var reports []Report
