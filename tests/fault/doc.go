// Package fault decides which operations of a wrapped thing go wrong. The
// wrappers (devices/faulty, metadata/faulty and fabric/faulty below it) ask an Injector before each
// operation and return the error that it gives.
//
// A Rule is an effect with the matchers that must all let an operation
// through for the effect to happen. They are asked in the order in which
// they are written, and one that counts sees only what the ones before it
// let through:
//
//	fault.Fail(err, fault.OnIndex(3))                      // the 4th operation
//	fault.Fail(err, fault.OnOp(OpRead), fault.OnIndex(3))  // the 4th read
//	fault.Fail(err, fault.Randomly(0.01, seed))            // one in a hundred
//	fault.Fail(err, toggle.On)                             // while switched on
//	fault.Delay(time.Millisecond, fault.OnOp(OpWrite))     // every write is late
//
// Everything here is safe for concurrent use, and random choices come from a
// seed, so that a failure can be had again.
package fault
