package devices

// Atime says which reads of a file change its access time.
type Atime int

const (
	// AtimeRelative changes it when it is not later than the last change, or
	// older than a day.
	AtimeRelative Atime = iota
	// AtimeNever leaves it as it is.
	AtimeNever
	// AtimeAlways changes it with each read.
	AtimeAlways
)

// Notes reports whether a read changes the access time; due says whether it
// does so relative to the last change.
func (a Atime) Notes(due bool) bool { return a == AtimeAlways || a == AtimeRelative && due }
