// Package tests holds the tests that need a mount, a second process, a network namespace or a
// GPU.
//
// Unit tests are next to the code that they test; this tree drives the real binary.
package tests
