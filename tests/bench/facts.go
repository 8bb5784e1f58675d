package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// facts has what the numbers depend on besides hmcfs.
type facts struct {
	lines      []string
	loadBefore string
	loadAfter  string
	// last says how it was measured.
	last string
}

// facts looks at the machine and its programs.
func (l *lab) facts(ctx context.Context) *facts {
	f := &facts{loadBefore: load()}
	f.machine(ctx, l.opts.hmcfs)
	if st, err := l.mnt.status(ctx); err == nil {
		for _, d := range st.Devices {
			if d.Family == "opencl" {
				f.add("OpenCL device", d.Model)
			}
		}
		f.add("passthrough", map[bool]string{true: "on", false: "off: " + st.Passthrough.Reason}[st.Passthrough.On])
	}
	f.add("Go", runtime.Version()+", go-fuse "+said(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/hanwen/go-fuse/v2"))
	f.add("dd and cp", said(ctx, "cp", "--version"))
	f.add("huge pages", "tmpfs "+word("/sys/kernel/mm/transparent_hugepage/shmem_enabled")+", anonymous "+word("/sys/kernel/mm/transparent_hugepage/enabled"))
	f.last = fmt.Sprintf("- files of %v, medians of %d rounds, %d empty files\n\n", l.opts.size, l.opts.rounds, l.opts.files)
	return f
}

// machine looks at what every table depends on.
func (f *facts) machine(ctx context.Context, hmcfs string) {
	f.add("date", time.Now().UTC().Format(time.DateOnly))
	f.add("hmcfs", said(ctx, hmcfs, "version"))
	f.add("machine", fmt.Sprintf("%d processors (%s), %s of memory", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory()))
	f.add("kernel", kernel())
}

func (f *facts) add(name, value string) {
	f.lines = append(f.lines, "- "+name+": "+strings.TrimSpace(value))
}

// end notes how busy the machine is when all is done.
func (f *facts) end() { f.loadAfter = load() }

// markdown writes the facts.
func (f *facts) markdown() string {
	return strings.Join(f.lines, "\n") + "\n" +
		fmt.Sprintf("- load of the last minute: %s before, %s after\n", f.loadBefore, f.loadAfter) + f.last
}

// said is the first line that a program prints.
func said(ctx context.Context, name string, args ...string) string {
	out, err := output(exec.CommandContext(ctx, name, args...))
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// field is the value of the first line of a file that begins with a name.
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memory() string {
	var kib float64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &kib); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Machine[:])
}

// word is the chosen one of a file such as "always [madvise] never".
func word(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(data), "[")
	chosen, _, _ := strings.Cut(rest, "]")
	return chosen
}

// load returns the number of processes that wanted to run, on average of the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
