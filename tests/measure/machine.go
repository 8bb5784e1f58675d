package measure

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// unknown stands for what the machine does not tell.
const unknown = "unknown"

// Said returns the first line that a program prints.
func Said(ctx context.Context, name string, args ...string) string {
	out, err := Output(exec.CommandContext(ctx, name, args...))
	if err != nil {
		return unknown
	}
	first, _, _ := strings.Cut(out, "\n")
	return first
}

// Field returns the value of the first line of a file that begins with a name.
func Field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// Kernel returns the name, release and machine of the kernel.
func Kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:]) + " " +
		unix.ByteSliceToString(name.Machine[:])
}

// Load returns the number of processes that wanted to run, on average of the last minute.
func Load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
