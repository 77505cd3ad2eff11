package local

import "golang.org/x/sys/unix"

// kernelVersion is what uname -r prints.
func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
