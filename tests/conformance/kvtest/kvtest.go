package kvtest

import (
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

// Opener opens the store of one test. The test closes it.
type Opener func(t *testing.T) metadata.KV

// Suite defines how stores are opened.
type Suite struct {
	// Open opens an empty store, a new one on each call.
	Open Opener
	// Persistent returns a function that opens the same store on every call, after the
	// previous instance was closed; nil if nothing outlives Close.
	Persistent func(t *testing.T) Opener
}

// Run runs the suite with stores from open, each empty.
func Run(t *testing.T, open Opener) {
	t.Helper()
	RunSuite(t, Suite{Open: open})
}

// RunSuite runs the suite and, for persistent stores, also the tests of persistence.
func RunSuite(t *testing.T, s Suite) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, kv metadata.KV)
	}{
		{"get set delete", testGetSetDelete},
		{"own writes", testOwnWrites},
		{"scan", testScan},
		{"scan own writes", testScanOwnWrites},
		{"scan random", testScanRandom},
		{"rollback", testRollback},
		{"view does not write", testViewReadOnly},
		{"view is a snapshot", testViewSnapshot},
		{"view within update", testViewWithinUpdate},
		{"big values", testBigValues},
		{"big transaction", testBigTransaction},
		{"increments", testIncrements},
		{"write skew", testWriteSkew},
		{"absent key", testAbsentKey},
		{"transfers", testTransfers},
		{"context", testContext},
		{"values are kept", testValuesKept},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kv := s.Open(t)
			test.run(t, kv)
			mustClose(t, kv)
		})
	}
	t.Run("closed", func(t *testing.T) { testClosed(t, s.Open(t)) })
	if s.Persistent == nil {
		return
	}
	t.Run("reopen", func(t *testing.T) { testReopen(t, s.Persistent(t)) })
}
