// Package kvtest is the conformance suite of metadata.KV: what its contract
// says, as tests that every implementation runs.
package kvtest
