package kit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// stackLimit bounds the size, in bytes, of a dump of all stacks.
const stackLimit = 64 << 20

// goroutines returns the stack of every goroutine that a test can be responsible for, by
// goroutine number.
func goroutines() map[string]string {
	out := make(map[string]string)
	for stack := range strings.SplitSeq(allStacks(), "\n\n") {
		head, body, ok := strings.Cut(stack, "\n")
		if !ok || ofTheRuntime(body) {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(head, "goroutine "), " ")
		out[id] = head + "\n" + body
	}
	return out
}

// allStacks dumps the stacks of all goroutines.
func allStacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= stackLimit {
			return string(buf[:n])
		}
	}
}

// ofTheRuntime reports whether a stack belongs to a goroutine that the standard library starts
// once for the whole process and never ends.
func ofTheRuntime(stack string) bool {
	for _, frame := range []string{
		"os/signal.signal_recv",
		"os/signal.loop",
		"runtime.ensureSigM",
		"testing.(*M).startAlarm",
		"runtime/pprof.profileWriter",
	} {
		if strings.Contains(stack, frame) {
			return true
		}
	}
	return false
}

// openDescriptors returns the target of each open file descriptor.
func openDescriptors() (map[string]string, error) {
	if err := startPoller(); err != nil {
		return nil, err
	}
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	own := fmt.Sprintf("/proc/%d/fd", os.Getpid())
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		if target != own {
			out[e.Name()] = target
		}
	}
	return out, nil
}

// startPoller makes the Go runtime open the descriptors of its network poller, which it does on
// first use, so that they don't count as a leak of a test.
func startPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	return errors.Join(r.Close(), w.Close())
}

// ownMounts reports whether the process has a mount namespace of its own, different from that
// of its parent.
func ownMounts() bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	parents, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	return err == nil && own != parents
}

// mountPoints returns the mount points at or below a directory, in the
// process's mount namespace, by mount number.
func mountPoints(within string) (map[string]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	below := strings.TrimSuffix(within, "/") + "/"
	out := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		// Number, parent, device, root and mount point come first.
		if f := strings.Fields(line); len(f) >= 5 && strings.HasPrefix(f[4]+"/", below) {
			out[f[0]] = f[4]
		}
	}
	return out, nil
}
