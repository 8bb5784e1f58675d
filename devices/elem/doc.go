// Package elem is the elements that memory is made of, and how they are
// combined: types, operations, and the loops that do it on the host.
//
// A device combines elements by itself where it can: devices.Reducer. What it
// must come to is what Combine does, bit for bit.
//
// # Operations
//
// Sum and Prod wrap around for integers. Min and Max of floating point numbers
// are NaN where either is, and take -0 for less than +0. Avg is Sum, with one
// division of the result by the number of those that gave: Divide, which cuts
// integers towards zero.
//
// # Rounding
//
// Each combination of two elements is rounded to their type, to nearest even,
// subnormal numbers included. Those of 16 bits are combined as float32, whose
// result is rounded once more. So is a division, whose divisor is rounded to
// the type that it is done in. A result that is NaN is always the same one, whatever
// the operands' bits were: positive and quiet, with no payload. So the order of
// two operands never shows in a result.
//
// # Processors
//
// There are loops for AVX2, which package tests/tools/elemasm writes, and loops
// in Go for every other processor. Both come to the same bits.
package elem
