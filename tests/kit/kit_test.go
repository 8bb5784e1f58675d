package kit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// recorder is a test that records its calls, to test test helpers.
type recorder struct {
	testing.TB

	errors   []string
	skipped  string
	cleanups []func()
}

// ended is the value with which a recorder panics where a test would stop.
type ended struct{}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(f string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(f, a...)) }

func (r *recorder) Fatalf(f string, a ...any) {
	r.Errorf(f, a...)
	panic(ended{})
}

func (r *recorder) Skipf(f string, a ...any) {
	r.skipped = fmt.Sprintf(f, a...)
	panic(ended{})
}

// run calls body as a test and then its clean-ups.
func (r *recorder) run(body func()) {
	defer func() {
		if p := recover(); p != nil && p != any(ended{}) {
			panic(p)
		}
		for _, cleanup := range slices.Backward(r.cleanups) {
			cleanup()
		}
	}()
	body()
}

func TestCheckIsSilent(t *testing.T) {
	r := &recorder{TB: t}
	r.run(func() {
		Check(r)
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = f.Close() }()
		<-done
	})
	if len(r.errors) != 0 {
		t.Errorf("a clean test was blamed: %q", r.errors)
	}
}

func TestCheckNamesLeaks(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	var f *os.File
	r := &recorder{TB: t}
	r.run(func() {
		check(r, 20*time.Millisecond, nil)
		go leaker(stop)
		var err error
		if f, err = os.Open(os.DevNull); err != nil {
			t.Fatal(err)
		}
	})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.errors, "\n")
	if len(r.errors) != 2 || !strings.Contains(got, "kit.leaker") || !strings.Contains(got, os.DevNull) {
		t.Errorf("want the goroutine's stack and the descriptor's target, got %q", r.errors)
	}
}

// TestCheckOfMounts mounts in the test's directory, which Check attributes to the test, and
// elsewhere, where another program may have mounted.
func TestCheckOfMounts(t *testing.T) {
	Require(t, "root")
	if ownMounts() {
		t.Skip("nobody else mounts in this process's mount namespace")
	}
	elsewhere, err := os.MkdirTemp("", "kit-") //nolint:usetesting // it must not lie below that one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(elsewhere) })
	within := t.TempDir()
	r := &recorder{TB: t}
	r.run(func() {
		check(r, 20*time.Millisecond, nil)
		for _, dir := range []string{elsewhere, within} {
			if err := unix.Mount("kit", dir, "tmpfs", 0, "size=4096"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		}
	})
	if got := strings.Join(r.errors, "\n"); len(r.errors) != 1 || !strings.Contains(got, within) {
		t.Errorf("want the mount at %s alone, got %q", within, r.errors)
	}
}

func leaker(stop chan struct{}) { <-stop }

func TestDiff(t *testing.T) {
	before := map[string]string{"3": "/a", "4": "/b"}
	after := map[string]string{"3": "/a", "4": "/c", "5": "/d", "6": "/e"}
	got := diff("descriptor", before, after, []Ignore{"/e"})
	want := []string{"descriptor 4: /c", "descriptor 5: /d"}
	if strings.Join(got, ";") != strings.Join(want, ";") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEventually(t *testing.T) {
	n := 0
	Eventually(t, time.Second, func() bool { n++; return n == 3 })
	Eventually(t, time.Second, func() error {
		if n++; n < 6 {
			return errors.New("too early")
		}
		return nil
	})
	r := &recorder{TB: t}
	r.run(func() { Eventually(r, 5*time.Millisecond, func() error { return errors.New("never so") }) })
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "never so") {
		t.Errorf("want one failure with the last error, got %q", r.errors)
	}
}

func TestClockTick(t *testing.T) {
	before := time.Now().UnixNano()
	ClockTick(t)
	if after := coarseTime(t); after <= before {
		t.Errorf("the clock stood still: %d, %d", before, after)
	}
}

func TestRequire(t *testing.T) {
	const need = "tool:no-such-program-anywhere"
	for _, tc := range []struct {
		env, need     string
		failed, skips bool
	}{
		{env: "", need: need, skips: true},
		{env: "fuse,root", need: need, skips: true},
		{env: "fuse, " + need, need: need, failed: true},
		{env: "all", need: need, failed: true},
		{env: "", need: "a-need-that-nobody-knows", failed: true},
		{env: "all", need: "tool:go"},
	} {
		t.Run(tc.env+"/"+tc.need, func(t *testing.T) {
			t.Setenv(RequireEnv, tc.env)
			r := &recorder{TB: t}
			r.run(func() { Require(r, tc.need) })
			if failed := len(r.errors) > 0; failed != tc.failed || (r.skipped != "") != tc.skips {
				t.Errorf("failed %q, skipped %q", r.errors, r.skipped)
			}
		})
	}
}

func TestBytesAreTheSameFromAnyOffset(t *testing.T) {
	const size = 10_000
	whole := Bytes(7, 0, size)
	for _, off := range []int{0, 1, 7, 8, 9, 4095, 4096, size - 1, size} {
		for _, n := range []int{0, 1, 7, 8, 9, 17, 1000} {
			n = min(n, size-off)
			if got := Bytes(7, int64(off), n); !bytes.Equal(got, whole[off:off+n]) {
				t.Fatalf("offset %d, length %d: differs at %d", off, n, FirstDiff(got, whole[off:]))
			}
		}
	}
}

func TestBytesDependOnSeedAndPosition(t *testing.T) {
	seen := make(map[string]string)
	for seed := range uint64(8) {
		for off := int64(0); off < 1<<40; off = off*2 + wordSize {
			where := fmt.Sprintf("seed %d, offset %d", seed, off)
			piece := string(Bytes(seed, off, wordSize))
			if other, ok := seen[piece]; ok {
				t.Fatalf("%s has the bytes of %s", where, other)
			}
			seen[piece] = where
		}
	}
}

func TestBytesStayWhatTheyAre(t *testing.T) {
	// Written files are compared across processes and releases.
	want := []byte{0xb8, 0xd5, 0xc0, 0x82, 0xfc, 0x23, 0xe4, 0xdc}
	if got := Bytes(1, 0, 8); !bytes.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

func TestDiffAt(t *testing.T) {
	p := Bytes(3, 5, 20_000)
	if i := DiffAt(p, 3, 5); i != -1 {
		t.Errorf("equal content differs at %d", i)
	}
	for _, at := range []int{0, 4095, 4096, 12_345, 19_999} {
		p[at] ^= 0x10
		if i := DiffAt(p, 3, 5); i != at {
			t.Errorf("got %d, want %d", i, at)
		}
		p[at] ^= 0x10
	}
}

func TestFirstDiff(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", -1},
		{"a", "a", -1},
		{"", "a", 0},
		{"abc", "abcd", 3},
		{"0123456789", "01234567x9", 8},
		{"0123456x89", "01234567x9", 7},
		{"x123456789", "0123456789", 0},
	} {
		if got := FirstDiff([]byte(tc.a), []byte(tc.b)); got != tc.want {
			t.Errorf("%q, %q: got %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func BenchmarkFillAt(b *testing.B) {
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		FillAt(p, 1, 3)
	}
}
