package kit

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle bounds the wait of Check for goroutines, descriptors and mounts to
// go away after a test: a server that was told to stop needs a moment, and a
// busy machine many of them.
const settle = 30 * time.Second

// Ignore is an exception for Check: leaks whose description contains the
// text are left out. The description of a goroutine is its stack, that of a
// descriptor the target of its link, that of a mount its mount point.
type Ignore string

// Check fails the test at its end if goroutines, file descriptors or mounts
// are left that were not there when Check was called, and prints each of
// them. It is the first line of a test, so that its own clean-up runs last.
//
// The counts are those of the process. A test that runs in parallel with
// others must not use it. Of the mounts, all count where the process has a
// mount namespace of its own (tests/mnt gives it one); elsewhere other
// programs mount while the test runs, and those below t.TempDir count.
func Check(t testing.TB, ignore ...Ignore) {
	t.Helper()
	check(t, settle, ignore)
}

// check is Check with the time that leaks get to go away.
func check(t testing.TB, timeout time.Duration, ignore []Ignore) {
	t.Helper()
	within := mountsOf(t)
	before := snapshot(t, within)
	t.Cleanup(func() {
		t.Helper()
		var left []string
		for wait := newBackoff(timeout); ; {
			left = before.left(snapshot(t, within), ignore)
			if len(left) == 0 {
				return
			}
			if !wait.next() {
				break
			}
		}
		for _, l := range left {
			t.Errorf("left behind by this test: %s", l)
		}
	})
}

// resources has those that a process holds at one moment: description by identity.
type resources struct {
	goroutines  map[string]string
	descriptors map[string]string
	mounts      map[string]string
}

// mountsOf returns the directory below which mounts are the test's.
func mountsOf(t testing.TB) (within string) {
	t.Helper()
	if ownMounts() {
		return "/"
	}
	// Every directory that TempDir returns to a test lies in one.
	return filepath.Dir(t.TempDir())
}

// snapshot reads what the process holds now, of mounts those within a
// directory.
func snapshot(t testing.TB, within string) resources {
	t.Helper()
	fds, err := openDescriptors()
	if err != nil {
		t.Fatalf("list open descriptors: %v", err)
	}
	mounts, err := mountPoints(within)
	if err != nil {
		t.Fatalf("list mounts: %v", err)
	}
	return resources{goroutines: goroutines(), descriptors: fds, mounts: mounts}
}

// left describes what is in after but not in r, in a stable order.
func (r resources) left(after resources, ignore []Ignore) []string {
	out := diff("goroutine", r.goroutines, after.goroutines, ignore)
	out = append(out, diff("descriptor", r.descriptors, after.descriptors, ignore)...)
	return append(out, diff("mount", r.mounts, after.mounts, ignore)...)
}

// diff describes what is in after but not in before.
func diff(kind string, before, after map[string]string, ignore []Ignore) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(after)) {
		what := after[id]
		if old, ok := before[id]; ok && (kind != "descriptor" || old == what) {
			continue
		}
		if ignored(what, ignore) {
			continue
		}
		out = append(out, kind+" "+id+": "+what)
	}
	return out
}

// ignored says whether one of the exceptions names what.
func ignored(what string, ignore []Ignore) bool {
	return slices.ContainsFunc(ignore, func(i Ignore) bool {
		return strings.Contains(what, string(i))
	})
}
