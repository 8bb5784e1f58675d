package devices

// Atime is the policy by which reads change a file's access time.
type Atime int

const (
	// AtimeRelative updates it if it is not later than the last change, or is older than a
	// day.
	AtimeRelative Atime = iota
	// AtimeNever never updates it.
	AtimeNever
	// AtimeAlways updates it with each read.
	AtimeAlways
)

// Notes reports whether a read updates the access time; due reports whether AtimeRelative
// would update it.
func (a Atime) Notes(due bool) bool { return a == AtimeAlways || a == AtimeRelative && due }
