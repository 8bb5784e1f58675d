package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// facts holds what the numbers depend on besides hmcfs.
type facts struct {
	lines      []string
	loadBefore string
	loadAfter  string
	// last describes how the table was measured.
	last string
}

// facts collects facts about the machine and its programs.
func (l *lab) facts(ctx context.Context) *facts {
	f := newFacts(ctx, l.opts)
	if st, err := l.mnt.Status(ctx); err == nil {
		for _, d := range st.Devices {
			if d.Family == "opencl" {
				f.add("OpenCL device", d.Model)
			}
		}
		f.add("passthrough", map[bool]string{true: "on", false: "off: " + st.Passthrough.Reason}[st.Passthrough.On])
	}
	f.add("Go", runtime.Version()+", go-fuse "+measure.Said(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/hanwen/go-fuse/v2"))
	if l.opts.vramfs != "" {
		f.add("vramfs", "on the same OpenCL device")
	}
	f.add("dd and cp", measure.Said(ctx, "cp", "--version"))
	f.add("huge pages", "tmpfs "+word("/sys/kernel/mm/transparent_hugepage/shmem_enabled")+", anonymous "+word("/sys/kernel/mm/transparent_hugepage/enabled"))
	f.last = fmt.Sprintf("- files of %v, medians of %d rounds, %d empty files\n\n", l.opts.size, l.opts.rounds, l.opts.files)
	return f
}

// newFacts collects the facts on which every table depends.
func newFacts(ctx context.Context, o options) *facts {
	f := &facts{loadBefore: measure.Load()}
	f.add("date", time.Now().UTC().Format(time.DateOnly))
	f.add("hmcfs", measure.Said(ctx, o.hmcfs, "version"))
	f.add("machine", fmt.Sprintf("%d processors (%s), %s of memory", runtime.NumCPU(), measure.Field("/proc/cpuinfo", "model name"), memory()))
	f.add("kernel", measure.Kernel())
	return f
}

func (f *facts) add(name, value string) {
	f.lines = append(f.lines, "- "+name+": "+strings.TrimSpace(value))
}

// end records the load of the machine at the end.
func (f *facts) end() { f.loadAfter = measure.Load() }

// markdown writes the facts.
func (f *facts) markdown() string {
	return strings.Join(f.lines, "\n") + "\n" +
		fmt.Sprintf("- load of the last minute: %s before, %s after\n", f.loadBefore, f.loadAfter) + f.last
}

func memory() string {
	var kib float64
	if _, err := fmt.Sscanf(measure.Field("/proc/meminfo", "MemTotal"), "%f kB", &kib); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// word returns the selected word of a file such as "always [madvise] never".
func word(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(data), "[")
	chosen, _, _ := strings.Cut(rest, "]")
	return chosen
}
