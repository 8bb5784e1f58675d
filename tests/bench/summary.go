package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// summaryBegin is the line that the summary follows, in docs/benchmarks.md and in README.md.
const summaryBegin = "<!-- measured: go run ./tests/bench -summary -write -->\n"

// headline is a row of a measured page that the summary shows.
type headline struct {
	what       string // for people
	page       string // without its folder and .md
	row        string
	of, beside string // the sides
	system     string // that beside is of
	front      bool   // it is in the README, too
}

// headlines returns what a reader asks first. A row that was not measured is left out: vramfs is
// measured only where its program is given.
func headlines() []headline {
	return []headline{
		{"read a file in host memory, dd", "mount", "host tier, dd read", "host", "tmpfs", "tmpfs", true},
		{"write a new file in host memory, dd", "mount", "host tier, dd write", "host", "tmpfs", "tmpfs", true},
		{"read a file in device memory (OpenCL), dd", "mount", "OpenCL file, dd read", "ocl0", "tmpfs", "tmpfs", true},
		{"read a file in device memory, beside vramfs", "mount", "OpenCL file, dd read", "ocl0", "vramfs", "vramfs", true},
		{"write a new file in device memory, dd", "mount", "OpenCL file, dd write", "ocl0", "tmpfs", "tmpfs", false},
		{"write a new file in device memory, beside vramfs", "mount", "OpenCL file, dd write", "ocl0", "vramfs", "vramfs", true},
		{"cp within a device, beside the raw call", "mount", "D2D, cp inside one OpenCL device", "cp", "clEnqueueCopyBuffer", "OpenCL", true},
		{"create and unlink an empty file", "mount", "create and unlink of empty files", "ocl0", "loopback", "go-fuse", true},
		{"put 64 MiB over TCP, loopback", "peers", "TCP put of 64 MiB over loopback", "put", "iperf3", "iperf3", false},
		{"put 1 MiB over TCP", "peers", "TCP, 1 MiB, beside UCX_TLS=tcp", "put", "ucp_put_bw", "UCX", false},
		{"read a key of 1 MiB (mget)", "objects", "get one key of 1 MiB, beside Redis", "mget", "redis-benchmark", "Redis", true},
		{"name own memory of 4 KiB by a key (mset)", "objects", "set one key of 4 KiB, beside Redis", "mset", "redis-benchmark", "Redis", true},
		{"set a key to a copy of 4 KiB (d2h)", "objects", "set one key of 4 KiB, beside Redis", "d2h", "redis-benchmark", "Redis", true},
		{"set a key to a copy of 1 MiB (d2h)", "objects", "set one key of 1 MiB, beside Redis", "d2h", "redis-benchmark", "Redis", false},
		{"cp from another node, over veth", "nodes", "cp between two nodes, host to host, over veth", "cp from the other node", "iperf3", "iperf3", true},
		{"all-reduce of 64 MiB in shared memory", "collectives", "all-reduce of 64 MiB, bus bandwidth", "hmcfs shm", "Open MPI shm", "Open MPI", true},
		{"all-reduce of 64 MiB over TCP", "collectives", "all-reduce of 64 MiB, bus bandwidth", "hmcfs tcp", "Gloo", "Gloo", false},
	}
}

// begins returns the lines at which the measured parts of the pages begin.
func begins() map[string]string {
	return map[string]string{
		"mount": sectionBegin, "peers": peersBegin, "objects": objectsBegin,
		"nodes": nodesBegin, "collectives": collectivesBegin,
	}
}

// found is a headline with what was measured.
type found struct {
	headline
	times         float64 // how many times as fast hmcfs is
	mine, theirs  string
	date, machine string
}

// summarize finds the headlines in the pages below a folder.
func summarize(root string) ([]found, error) {
	read := map[string]*measured{}
	for name, begin := range begins() {
		m, err := readPage(filepath.Join(root, pages, name+".md"), begin)
		if err != nil {
			return nil, err
		}
		read[name] = m
	}
	var out []found
	for _, h := range headlines() {
		m := read[h.page]
		f := found{headline: h, mine: m.figures[h.row][h.of], theirs: m.figures[h.row][h.beside], date: m.date, machine: m.machine}
		v, ok := m.verdicts[h.row+": "+h.of+" / "+h.beside]
		switch {
		case !ok && (f.mine == "" || f.theirs == ""):
			continue
		case f.mine == "" || f.theirs == "" || ok && v.ratio == 0:
			return nil, fmt.Errorf("%s.md: the figures of %q are not there", h.page, h.row)
		case !ok:
			times, err := timesOf(f.mine, f.theirs)
			if err != nil {
				return nil, fmt.Errorf("%s.md: %q: %w", h.page, h.row, err)
			}
			f.times = times
		case v.atMost:
			f.times = 1 / v.ratio
		default:
			f.times = v.ratio
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errors.New("no page has a row of the summary")
	}
	return out, nil
}

// timesOf returns how many times as fast the first of two figures is, for sides that have no target: "2.0 µs" and "4.0 µs" are 2.
func timesOf(mine, theirs string) (float64, error) {
	var values [2]float64
	var units [2]string
	for i, figure := range []string{mine, theirs} {
		digits := strings.TrimLeft(figure, "0123456789.")
		value, err := strconv.ParseFloat(strings.TrimSuffix(figure, digits), 64)
		if err != nil || value == 0 {
			return 0, fmt.Errorf("%q is no figure", figure)
		}
		values[i], units[i] = value, digits
	}
	if units[0] != units[1] {
		return 0, fmt.Errorf("%q and %q have different units", mine, theirs)
	}
	if strings.HasSuffix(units[0], "/s") {
		return values[0] / values[1], nil
	}
	return values[1] / values[0], nil
}

// summaryTable formats rows for docs/benchmarks.md.
func summaryTable(rows []found) string {
	var b strings.Builder
	b.WriteString("| what | hmcfs | beside | | times as fast | measured |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f | [%s](benchmarks/%s.md) |\n", f.what, f.mine, f.system, f.theirs, f.times, f.date, f.page)
	}
	return b.String() + "\nAll on " + machines(rows) + ".\n"
}

// frontTable formats the rows of README.md.
func frontTable(rows []found) string {
	var b strings.Builder
	var shown []found
	b.WriteString("| | hmcfs | beside | | times as fast |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range rows {
		if f.front {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f |\n", f.what, f.mine, f.system, f.theirs, f.times)
			shown = append(shown, f)
		}
	}
	first, last := shown[0].date, shown[0].date
	for _, f := range shown {
		first, last = min(first, f.date), max(last, f.date)
	}
	when := first + " to " + last
	if first == last {
		when = first
	}
	return b.String() + "\nMeasured " + when + " on " + machines(shown) + ", beside the other program in the same run.\n"
}

// machines names the machines of rows.
func machines(rows []found) string {
	var all []string
	for _, f := range rows {
		if !strings.Contains(strings.Join(all, ""), f.machine) {
			all = append(all, f.machine)
		}
	}
	return strings.Join(all, "; ")
}

// writeSummary writes the summary of the pages below a folder, its chart, and the README's table.
func writeSummary(root string) error {
	rows, err := summarize(root)
	if err != nil {
		return err
	}
	return errors.Join(
		measure.ReplaceSection(filepath.Join(root, "docs/benchmarks.md"), summaryBegin, summaryTable(rows)),
		measure.ReplaceSection(filepath.Join(root, "README.md"), summaryBegin, frontTable(rows)),
		os.WriteFile(filepath.Join(root, pages, "summary.svg"), chart(rows), 0o644),
	)
}
