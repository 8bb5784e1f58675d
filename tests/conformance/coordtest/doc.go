// Package coordtest is the conformance suite of coord.Service: what its
// contract says, as tests that every implementation runs.
package coordtest
