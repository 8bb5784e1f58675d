package kit

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle bounds the time for which Check waits after a test for goroutines, descriptors and
// mounts to end: a server that is shutting down needs a moment, and on a busy machine more.
const settle = 30 * time.Second

// Ignore is an exception for Check: leaks whose description contains the text are ignored. The
// description of a goroutine is its stack, that of a descriptor the target of its link, that of
// a mount its mount point.
type Ignore string

// Check fails the test at its end if there are goroutines, file descriptors or mounts that did
// not exist when Check was called, and prints each of them. Call it in the first line of a
// test, so that its own clean-up runs last.
//
// It compares the resources of the process, so a test that runs in parallel with others must
// not use it. If the process has a mount namespace of its own (tests/mnt provides it), all
// mounts count; otherwise, since other programs may mount while the test runs, only those in
// the directories of t.TempDir count.
func Check(t testing.TB, ignore ...Ignore) {
	t.Helper()
	check(t, settle, ignore)
}

// check is Check with a limit on the wait for leaks to end.
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

// resources holds the resources of a process at one moment: description by identity.
type resources struct {
	goroutines  map[string]string
	descriptors map[string]string
	mounts      map[string]string
}

// mountsOf returns the directory below which mounts belong to the test.
func mountsOf(t testing.TB) (within string) {
	t.Helper()
	if ownMounts() {
		return "/"
	}
	// All directories that TempDir returns to a test have this parent.
	return filepath.Dir(t.TempDir())
}

// snapshot reads the current resources of the process; of mounts, those within a directory.
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

// left describes the resources that are in after but not in r, in a stable order.
func (r resources) left(after resources, ignore []Ignore) []string {
	out := diff("goroutine", r.goroutines, after.goroutines, ignore)
	out = append(out, diff("descriptor", r.descriptors, after.descriptors, ignore)...)
	return append(out, diff("mount", r.mounts, after.mounts, ignore)...)
}

// diff describes the resources that are in after but not in before.
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

// ignored reports whether one of the exceptions matches a description.
func ignored(what string, ignore []Ignore) bool {
	return slices.ContainsFunc(ignore, func(i Ignore) bool {
		return strings.Contains(what, string(i))
	})
}
