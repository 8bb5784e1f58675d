// Package fault decides which operations of a wrapped object fail. The wrappers below it
// (devices/faulty, metadata/faulty and fabric/faulty) ask an Injector before each operation,
// and return its error.
//
// A Rule is an effect and matchers. The effect happens for the operations that all matchers
// let through. Matchers are evaluated in the order in which they are written, and one that
// counts sees only the operations that those before it let through:
//
//	fault.Fail(err, fault.OnIndex(3))                      // the 4th operation
//	fault.Fail(err, fault.OnOp(OpRead), fault.OnIndex(3))  // the 4th read
//	fault.Fail(err, fault.Randomly(0.01, seed))            // one in a hundred
//	fault.Fail(err, toggle.On)                             // while switched on
//	fault.Delay(time.Millisecond, fault.OnOp(OpWrite))     // every write is late
//
// Everything here is safe for concurrent use. Random choices come from a seed, so that a
// failure can be reproduced.
package fault
