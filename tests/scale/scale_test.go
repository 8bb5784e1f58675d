package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// TestRun runs all measurements on a small scale, and writes the table.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases and probes")
	}
	kit.Require(t, "tool:etcd")
	doc := filepath.Join(t.TempDir(), "scale.md")
	if err := os.WriteFile(doc, []byte("before\n"+sectionBegin+"old\n"+measure.SectionEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	o := options{nodes: 12, keys: 1200, etcdNodes: 4, etcdKeys: 400, rest: time.Second, write: true, doc: doc}
	if err := run(t.Context(), o, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "after\n", "simulated: 12 nodes, 1200 keys", "etcd: 4 nodes, 400 keys", "one node leaves"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old\n") {
		t.Error("the old table is there")
	}
}
