// Package coordtest is the conformance suite of coord.Service: the interface's contract as
// tests that every implementation runs.
package coordtest
