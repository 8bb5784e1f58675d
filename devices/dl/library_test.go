package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/standin"
)

func libc() Library {
	return Library{Names: []string{"libnothere.so.9", "libc.so.6"}, Hint: "apt install libc6"}
}

func TestOpenTakesTheFirstThatLoads(t *testing.T) {
	h, err := Open(libc())
	if err != nil {
		t.Fatal(err)
	}
	if h.Name() != "libc.so.6" {
		t.Errorf("opened %s", h.Name())
	}
}

func TestOpenSaysHowToGetIt(t *testing.T) {
	_, err := Open(Library{Names: []string{"libnothere.so.9"}, Hint: "apt install nothere"})
	if !errors.Is(err, ErrNotInstalled) {
		t.Fatalf("got %v", err)
	}
	if got, want := err.Error(), "libnothere.so.9 is not installed; apt install nothere"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOpenSaysWhyAFileDoesNotLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libbroken.so")
	if err := os.WriteFile(path, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Library{Names: []string{path}})
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "does not load") {
		t.Errorf("got %v", err)
	}
}

func TestOpenWithoutNames(t *testing.T) {
	if _, err := Open(Library{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func TestResolve(t *testing.T) {
	h, err := Open(libc())
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Getpid  Func `dl:"getpid"`
		Missing Func `dl:"no_such_function,optional"`
		Note    string
	}
	if err := h.Resolve(&table); err != nil {
		t.Fatal(err)
	}
	if table.Missing.Present() || !table.Getpid.Present() {
		t.Errorf("table %+v", table)
	}
	if got := int(int32(table.Getpid.Call())); got != os.Getpid() {
		t.Errorf("getpid says %d, it is %d", got, os.Getpid())
	}
}

// TestResolvePrefix resolves functions whose tags omit the prefix, and checks that missing
// ones are reported with their full name.
func TestResolvePrefix(t *testing.T) {
	h, err := Open(libc())
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Pid     Func `dl:"pid"`
		Missing Func `dl:"no_such_function,optional"`
	}
	if err := h.ResolvePrefix("get", &table); err != nil {
		t.Fatal(err)
	}
	if got := int(int32(table.Pid.Call())); table.Missing.Present() || got != os.Getpid() {
		t.Errorf("getpid says %d, it is %d", got, os.Getpid())
	}
	if err := h.ResolvePrefix("no_such_", &table); !errors.Is(err, ErrNoSymbol) || !strings.Contains(err.Error(), "no_such_pid") {
		t.Errorf("%v", err)
	}
}

// TestResolveTyped calls functions with a structure by value, small enough for
// registers and too large for them.
func TestResolveTyped(t *testing.T) {
	type handle struct{ Words [8]uint64 }
	type pair struct{ Quot, Rem int64 }
	h, err := Open(Library{Names: []string{filepath.Join(standin.Library(t, "byvalue", "libbyvalue.so"), "libbyvalue.so")}})
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Fold    func(out *uint64, h handle, flags uint32) int32 `dl:"fold"`
		Sum     func(p pair) int64                              `dl:"sum"`
		Missing func()                                          `dl:"no_such_function,optional"`
	}
	if err := h.Resolve(&table); err != nil {
		t.Fatal(err)
	}
	if table.Missing != nil {
		t.Error("a function that the library lacks")
	}
	if got := table.Sum(pair{40, 2}); got != 42 {
		t.Errorf("sum %d", got)
	}
	var in handle
	want := uint64(0)
	for i := range in.Words {
		in.Words[i] = uint64(i)*0x9e3779b97f4a7c15 + 7
		want = want*31 + in.Words[i]
	}
	var got uint64
	if code := table.Fold(&got, in, 0xfffffff1); code != -15 || got != want {
		t.Errorf("code %d, fold %x, want -15 and %x", code, got, want)
	}
	if err := h.Resolve(&struct {
		A func() `dl:"no_such_function"`
	}{}); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("a missing function: %v", err)
	}
}

func TestResolveNamesEveryMissingSymbol(t *testing.T) {
	h, err := Open(libc())
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		A Func `dl:"no_such_a"`
		B Func `dl:"no_such_b"`
	}
	err = h.Resolve(&table)
	if !errors.Is(err, ErrNoSymbol) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"no_such_a", "no_such_b", "libc.so.6", "apt install libc6"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestStringAndBytes(t *testing.T) {
	h, err := Open(libc())
	if err != nil {
		t.Fatal(err)
	}
	strerror, err := h.Lookup("strerror")
	if err != nil {
		t.Fatal(err)
	}
	addr := strerror.Call(2)
	if got := String(addr); !strings.Contains(got, "No such file") {
		t.Errorf("strerror(2) = %q", got)
	}
	if got := string(Bytes(addr, 2)); got != "No" {
		t.Errorf("bytes %q", got)
	}
	if got := String(0); got != "" {
		t.Errorf("null is %q", got)
	}
}

func BenchmarkCall(b *testing.B) {
	h, err := Open(libc())
	if err != nil {
		b.Fatal(err)
	}
	fn, err := h.Lookup("getppid")
	if err != nil {
		b.Fatal(err)
	}
	abs, err := h.Lookup("labs")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("getppid", func(b *testing.B) {
		for b.Loop() {
			fn.Call()
		}
	})
	b.Run("labs", func(b *testing.B) {
		for b.Loop() {
			abs.Call(42)
		}
	})
}
