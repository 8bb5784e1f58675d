package mnt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/fault"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
)

// faultsEnv names the file with the faults of the daemon's devices. The daemon checks the file
// before each operation of a device, so that a test can turn faults on and off while the mount
// is up.
const faultsEnv = "HMCFS_TEST_FAULTS"

// Faults is the path of a file that selects the operations of a daemon's devices that fail.
// Each line is one rule:
//
//	DEVICE KIND every N ERROR     each N-th operation
//	DEVICE KIND at N ERROR        the N-th from now on, from 0
//	DEVICE KIND from N ERROR      the N-th and all after it
//	DEVICE KIND delay DURATION    all are delayed
//
// DEVICE is a name or *, KIND one of faulty's kinds with dashes for spaces (copy-in, copy-out,
// copy, peer-copy, alloc, fill, map, …) or *, ERROR is error, memory (out of memory) or lost.
type Faults string

// Set replaces the rules; without rules everything succeeds. Counting restarts.
func (f Faults) Set(t testing.TB, rules ...string) {
	t.Helper()
	if err := f.Write(rules...); err != nil {
		t.Fatalf("write faults: %v", err)
	}
}

// Write is Set for callers without a test.
func (f Faults) Write(rules ...string) error {
	next := string(f) + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(rules, "\n")), 0o644); err != nil {
		return err
	}
	return os.Rename(next, string(f))
}

// Env returns the environment variable that makes a daemon follow the file.
func (f Faults) Env() string { return faultsEnv + "=" + string(f) }

// NewFaults returns an empty file of faults in a directory.
func NewFaults(t testing.TB, dir string) Faults {
	t.Helper()
	f := Faults(filepath.Join(dir, "faults"))
	f.Set(t)
	return f
}

// wrapDevice returns a wrapper that injects the file's faults into devices; nil without a file.
func wrapDevice(file string) func(devices.Device) devices.Device {
	if file == "" {
		return nil
	}
	return func(dev devices.Device) devices.Device {
		w := &watcher{file: file, device: string(dev.Info().Name)}
		return faulty.Wrap(dev, w.before)
	}
}

// watcher follows the file of faults for one device.
type watcher struct {
	file   string
	device string

	mu sync.Mutex
	// +checklocks:mu
	inode os.FileInfo
	// +checklocks:mu
	rules *fault.Injector[string]
}

// before decides about one operation.
func (w *watcher) before(op faulty.Op) error {
	rules, err := w.current()
	if err != nil {
		return err
	}
	return rules.Before(context.Background(), strings.ReplaceAll(op.Kind.String(), " ", "-"))
}

// current returns the current rules of the file.
func (w *watcher) current() (*fault.Injector[string], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := os.Stat(w.file)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	if w.inode != nil && os.SameFile(w.inode, now) && w.inode.ModTime().Equal(now.ModTime()) {
		return w.rules, nil
	}
	data, err := os.ReadFile(w.file)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	rules, err := parseFaults(string(data), w.device)
	if err != nil {
		return nil, err
	}
	w.inode, w.rules = now, rules
	return rules, nil
}

// parseFaults reads the rules for one device.
func parseFaults(text, device string) (*fault.Injector[string], error) {
	var rules []fault.Rule
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 4 {
			return nil, fmt.Errorf("fault %q: too few words", line)
		}
		if words[0] != "*" && words[0] != device {
			continue
		}
		rule, err := parseFault(words[1:])
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", line, err)
		}
		rules = append(rules, rule)
	}
	return fault.New[string](rules...), nil
}

// parseFault reads KIND, effect and its arguments.
func parseFault(words []string) (fault.Rule, error) {
	var when []fault.Matcher
	if words[0] != "*" {
		when = append(when, fault.OnOp(words[0]))
	}
	if words[1] == "delay" {
		d, err := time.ParseDuration(words[2])
		return fault.Delay(d, when...), err
	}
	n, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil || len(words) != 4 {
		return fault.Rule{}, fmt.Errorf("want a number and an error: %w", err)
	}
	switch words[1] {
	case "every":
		when = append(when, fault.Every(n))
	case "at":
		when = append(when, fault.OnIndex(n))
	case "from":
		when = append(when, fault.FromIndex(n))
	default:
		return fault.Rule{}, fmt.Errorf("unknown effect %q", words[1])
	}
	injected, ok := map[string]error{
		"error": devices.ErrDevice, "memory": devices.ErrOutOfMemory, "lost": devices.ErrLost,
	}[words[3]]
	if !ok {
		return fault.Rule{}, fmt.Errorf("unknown error %q", words[3])
	}
	return fault.Fail(injected, when...), nil
}
