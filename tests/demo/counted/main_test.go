package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestRun(t *testing.T) {
	kit.Check(t)
	file := filepath.Join(t.TempDir(), "stats")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"devices":[{"name":"sim0"}],"transfers":{"paths":[
		{"path":"staged","device":"sim0","bytes":5},
		{"path":"d2d","device":"sim1","bytes":20},
		{"path":"d2d","device":"sim0","bytes":1}],"pinned_total":3}}`)
	var out strings.Builder
	if err := run([]string{file}, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "d2d 21\nstaged 5\n" {
		t.Errorf("printed %q", out.String())
	}
	write("{")
	if err := run([]string{file}, &out); err == nil {
		t.Error("half a file is read")
	}
	if err := run([]string{filepath.Join(t.TempDir(), "none")}, &out); err == nil {
		t.Error("a file that is missing is read")
	}
	if err := run(nil, &out); err == nil {
		t.Error("no file is read")
	}
}
