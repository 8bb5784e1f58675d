// Package kvtest is the conformance suite of metadata.KV: the interface's contract as tests
// that every implementation runs.
package kvtest
