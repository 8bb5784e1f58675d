package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		{"get a key of 1 MiB", "objects", "get one key of 1 MiB, beside Redis", "mget", "redis-benchmark", "Redis", true},
		{"set a key of 4 KiB", "objects", "set one key of 4 KiB, beside Redis", "mset", "redis-benchmark", "Redis", true},
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
		v, ok := m.verdicts[h.row+": "+h.of+" / "+h.beside]
		if !ok {
			continue
		}
		f := found{headline: h, times: v.ratio, mine: m.figures[h.row][h.of], theirs: m.figures[h.row][h.beside], date: m.date, machine: m.machine}
		if v.atMost {
			f.times = 1 / v.ratio
		}
		if f.mine == "" || f.theirs == "" || v.ratio == 0 {
			return nil, fmt.Errorf("%s.md: the figures of %q are not there", h.page, h.row)
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errors.New("no page has a row of the summary")
	}
	return out, nil
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
