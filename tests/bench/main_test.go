package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/tests/spread"
)

func TestMain(m *testing.M) {
	if runChild(os.Args, os.Stdout, os.Stderr) {
		return
	}
	spread.Main(m, build)
}

// BenchmarkTargets measures every row once and prints the table.
func BenchmarkTargets(b *testing.B) {
	kit.Require(b, "fuse", "root", "opencl")
	o := defaults()
	o.hmcfs = "../../bin/hmcfs"
	if err := run(b.Context(), o, os.Stdout, os.Stderr); err != nil {
		b.Fatal(err)
	}
}

// small measures every row of a table with little data, to verify that the program works, and
// checks the document and that nothing is left behind.
func small(t *testing.T, o options, begin string, rows []row) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o.hmcfs, o.rounds, o.write, o.doc = hmcfs(), 1, true, filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(o.doc, []byte("before\n"+begin+"MEASURED BEFORE\n"+measure.SectionEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	if err := run(t.Context(), o, &out, &said); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	doc, err := os.ReadFile(o.doc)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	if !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "after\n") || strings.Contains(text, "MEASURED BEFORE") || !strings.Contains(text, out.String()) {
		t.Errorf("the document is\n%s", text)
	}
	for _, row := range rows {
		if !strings.Contains(text, "**"+row.name+"**") {
			t.Errorf("no row %q in\n%s", row.name, text)
		}
	}
	// Mounts are below it, so this covers them too.
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	kit.Require(t, "fuse", "root", "opencl")
	o := defaults()
	o.sizeArg, o.files, o.reads, o.keys, o.through = "4MiB", 20, 50, 2000, 16*devices.MiB
	small(t, o, sectionBegin, (&lab{opts: o, mnt: &measure.Mount{Point: "mnt"}}).rows())
}

// TestSmallObjects is TestSmall for the rows of keyed objects.
func TestSmallObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	kit.Require(t, "fuse", "root", "opencl", "tool:redis-server")
	o := defaults()
	o.objects, o.large, o.manyKeys, o.manyBlobs, o.calls = true, devices.MiB, 20, 7, 3
	small(t, o, objectsBegin, (&lobby{opts: o}).rows())
}

func TestDDRate(t *testing.T) {
	for text, want := range map[string]float64{
		"1024+0 records in\n1024+0 records out\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.5 s, 2.1 GB/s\n": 2 << 30,
		"1000 bytes (1.0 kB, 1000 B) copied, 4.0e-05 s, 1 MB/s\n":                                             25e6,
	} {
		got, err := ddRate(text)
		if diff := got/want - 1; err != nil || diff < -1e-9 || diff > 1e-9 {
			t.Errorf("rate of %q = %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ddRate("dd: no space"); err == nil {
		t.Error("no report has a rate")
	}
}

func TestJudge(t *testing.T) {
	r := result{figures: []figure{{"a", bench.Series{1, 2, 9}}, {"b", bench.Series{2, 2, 10}}}}
	for _, c := range []struct {
		w       want
		reached float64
		ok      bool
	}{
		{want{of: "a", against: "b", bound: 0.9}, 0.9, true},
		{want{of: "a", against: "b", bound: 0.91}, 0.9, false},
		{want{of: "a", bound: 2}, 2, true},
		{want{of: "a", bound: 2, atMost: true}, 2, false},
		{want{of: "a", bound: 3, atMost: true}, 2, true},
		{want{of: "none", bound: 3, atMost: true}, 0, false},
	} {
		if v := r.judge(c.w); v.reached != c.reached || v.ok != c.ok {
			t.Errorf("%+v: reached %v, %v", c.w, v.reached, v.ok)
		}
	}
}

// A target in seconds is printed in the unit of its row.
func TestJudgeTimes(t *testing.T) {
	r := result{unit: micros, figures: []figure{{"a", bench.Series{20e-6}}}}
	v := r.judge(want{of: "a", bound: 50e-6, atMost: true})
	if !v.ok || v.bound != "< 50.0 µs" || v.reached < 19.9 || v.reached > 20.1 {
		t.Errorf("judged: %+v", v)
	}
}

func TestChild(t *testing.T) {
	kit.Check(t)
	state := t.TempDir()
	if n, err := task(t.Context(), io.Discard, "build", state, []string{"2500"}); err != nil || n != 2500 {
		t.Fatalf("build = %v, %v", n, err)
	}
	if took, err := task(t.Context(), io.Discard, "open", state, nil); err != nil || took <= 0 {
		t.Errorf("open = %v, %v", took, err)
	}
	s, err := openStore(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	ino, err := s.KeyIno(t.Context(), "model:layer99:tensor2499")
	if err != nil {
		t.Errorf("the last key: %v", err)
	}
	maps, err := s.Mappings(t.Context(), ino)
	if err != nil || len(maps) != 1 || maps[0].Len != 4096 {
		t.Errorf("mappings of the last file: %v, %v", maps, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := task(t.Context(), io.Discard, "dance", state, nil); err == nil {
		t.Error("a task that is none is done")
	}
	if runChild([]string{"bench", "-rows", "x", "y"}, nil, nil) {
		t.Error("a plain run is taken for a child")
	}
}

// TestSmallRanks is TestSmall for a row of ranks in Python.
func TestSmallRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	kit.Require(t, "numpy")
	o := defaults()
	o.ranks, o.rankCalls, o.python, o.rows = true, 2, "../../objects/client/python", "send and receive of 16"
	small(t, o, ranksBegin, (&ranks{opts: o}).rows()[2:3])
}

// TestSmallHeld is TestSmall for a mount whose daemon is killed.
func TestSmallHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	kit.Require(t, "fuse", "root", "opencl")
	o := defaults()
	o.held, o.deaths, o.files, o.sizeArg = true, 1, 20, "4MiB"
	small(t, o, heldBegin, (&held{opts: o, lab: &lab{opts: o, mnt: &measure.Mount{Point: "mnt"}}}).rows())
}
