// Package elem is the elements that memory is made of, and how they are
// combined: types, operations, and the loops that do it on the host.
//
// A device combines elements by itself where it can: devices.Reducer. What it
// must come to is what Combine does, bit for bit for integers, and for floating
// point the same rounding: each combination of two elements is rounded to their
// type, to nearest even.
//
// # Operations
//
// Sum and Prod wrap around for integers. Min and Max of floating point numbers
// are NaN where either is, and take -0 for less than +0. Avg is Sum, with one
// division of the result by the number of those that gave: Divide, which cuts
// integers towards zero.
package elem
