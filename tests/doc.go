// Package tests holds everything that needs a mount, a second process, a
// network namespace or a GPU.
//
// Unit tests stand beside the code that they test; this tree drives the real
// binary.
package tests
