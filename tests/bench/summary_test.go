package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestSummary checks that the summary, the README's table and the chart are of the figures that
// the pages have, and that a page lacks no row of the summary but vramfs's.
func TestSummary(t *testing.T) {
	rows, err := summarize(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headlines() {
		there := false
		for _, f := range rows {
			there = there || f.headline == h
		}
		if !there && h.system != "vramfs" {
			t.Errorf("no page has %q: %s / %s", h.row, h.of, h.beside)
		}
	}
	for name, want := range map[string]string{
		"docs/benchmarks.md": summaryTable(rows), "README.md": frontTable(rows), pages + "summary.svg": string(chart(rows)),
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is not of the measured pages (%v); go run ./tests/bench -summary -write", name, err)
		}
	}
}

func TestReadPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	text := "before\n" + nodesBegin + `
- date: 2026-01-02
- machine: 2 processors

| what | target | reached | |
| --- | --- | --- | --- |
| a row: ours, two / other | ≥ 0.50 | 0.79 | reached |
| another: ours | < 2 µs | 1.05 | reached |

- **a row**: ours, two 6.35 GB/s, ours 1.00 GB/s, other 8.10 GB/s, many 12/s; load 1.2.
- **another**: ours 1.1 µs, count 3.
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := readPage(path, nodesBegin)
	if err != nil {
		t.Fatal(err)
	}
	if m.date != "2026-01-02" || m.machine != "2 processors" {
		t.Errorf("%+v", m)
	}
	if v := m.verdicts["a row: ours, two / other"]; v.ratio != 0.79 || v.atMost {
		t.Errorf("%+v", m.verdicts)
	}
	if v := m.verdicts["another: ours"]; v.ratio != 1.05 || !v.atMost {
		t.Errorf("%+v", m.verdicts)
	}
	for side, want := range map[string]string{"ours, two": "6.35 GB/s", "ours": "1.00 GB/s", "other": "8.10 GB/s", "many": "12/s"} {
		if got := m.figures["a row"][side]; got != want {
			t.Errorf("%s: %q, want %q of %v", side, got, want, m.figures["a row"])
		}
	}
	if got := m.figures["another"]["ours"]; got != "1.1 µs" {
		t.Errorf("%q", got)
	}
	if _, err := readPage(path, peersBegin); err == nil {
		t.Error("a page without the part is read")
	}
}

func TestTimesOf(t *testing.T) {
	for _, c := range []struct {
		mine, theirs string
		want         float64
	}{
		{"200.0 µs", "50.0 µs", 0.25},
		{"3.00 GB/s", "1.50 GB/s", 2},
		{"300/s", "600/s", 0.5},
		{"1.0 µs", "1.0 ms", 0},
		{"0 µs", "1 µs", 0},
		{"", "1 µs", 0},
		{"fast", "1 µs", 0},
	} {
		if got, err := timesOf(c.mine, c.theirs); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%q beside %q: %v, %v, want %v", c.mine, c.theirs, got, err, c.want)
		}
	}
}

// TestStyles checks that each system has one colour, that no two share one, and that hmcfs is
// drawn boldest.
func TestStyles(t *testing.T) {
	all := styles([]string{"Gloo", "Open MPI shm", "Open MPI tcp", "hmcfs shm", "hmcfs tcp"})
	if all["hmcfs shm"].colour != all["hmcfs tcp"].colour || all["Open MPI shm"].colour != all["Open MPI tcp"].colour {
		t.Errorf("one system has two colours: %+v", all)
	}
	if all["Gloo"].colour == all["hmcfs shm"].colour || all["Gloo"].colour == all["Open MPI shm"].colour || all["hmcfs shm"].colour == all["Open MPI shm"].colour {
		t.Errorf("two systems have one colour: %+v", all)
	}
	if all["hmcfs shm"].variant == all["hmcfs tcp"].variant || all["hmcfs shm"].width <= all["Gloo"].width {
		t.Errorf("%+v", all)
	}
	alone := styles([]string{"shm get", "shm put", "tcp get", "tcp put"})
	if alone["shm get"].colour != alone["shm put"].colour || alone["shm get"].colour == alone["tcp get"].colour || alone["tcp get"].variant == alone["tcp put"].variant {
		t.Errorf("%+v", alone)
	}
	seen := map[[4]uint32]string{}
	for system, c := range colours() {
		r, g, b, a := c.RGBA()
		if other, ok := seen[[4]uint32{r, g, b, a}]; ok {
			t.Errorf("%s and %s have one colour", system, other)
		}
		seen[[4]uint32{r, g, b, a}] = system
	}
}
