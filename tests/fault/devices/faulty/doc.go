// Package faulty wraps a device so that chosen operations fail: with it, a test can make a
// card break down at any point.
//
//	dev = faulty.Wrap(dev, faulty.EveryNth(7, faulty.CopyIn, devices.ErrDevice))
//
// The wrapper has exactly the abilities of the wrapped device, except for export and import:
// it always implements these, and returns ErrUnsupported if the device lacks them, as the
// helpers do. Its memories are its own, each around a memory of the wrapped device, so that
// spans of the two cannot be mixed up. An operation that is made to fail does not reach the
// device, with one exception: a free that fails has freed the memory, so that a test sees the
// leaks of the code under test, and none that the fault causes.
//
// The shipped program does not link this package.
//
// # Lock order
//
// The package has no locks. The hook is called from any goroutine.
package faulty
