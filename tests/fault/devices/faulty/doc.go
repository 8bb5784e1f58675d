// Package faulty wraps a device so that chosen operations fail: a test's way
// to have a card break down at any point.
//
//	dev = faulty.Wrap(dev, faulty.EveryNth(7, faulty.CopyIn, devices.ErrDevice))
//
// The wrapper has exactly the abilities of the device in it, apart from export
// and import: it has these always, and says ErrUnsupported where the device has
// not, as the helpers do. Its memories are
// its own, each around one of the inner device, so that spans of both are not
// mixed up. An operation that is made to fail does not reach the device at
// all, with one exception: a free that fails has freed the memory, so that a
// test sees what its own code leaks and not what the fault leaks.
//
// The shipped program does not link this package.
//
// # Lock order
//
// The package has no locks. The hook is called from any goroutine.
package faulty
