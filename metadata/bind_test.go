package metadata

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestBinding checks that a binding is removed with its inode, and refused where it is not
// allowed.
func TestBinding(t *testing.T) {
	s := newMapStore(t)
	ctx := t.Context()
	dev, err := s.Lookup(ctx, RootIno, "sim0")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) Ino {
		in, err := s.Create(ctx, dev.Ino, name, Node{Mode: TypeRegular | 0o600})
		if err != nil {
			t.Fatal(err)
		}
		return in.Ino
	}
	size := func(n uint64) func(*Inode) error {
		return func(in *Inode) error { in.Size = n; return nil }
	}
	a, b := file("a"), file("b")
	for i, ino := range []Ino{a, b} {
		in, err := s.Bind(ctx, ino, []byte{byte(i)}, size(4096))
		if err != nil || in.Bound != BoundLive || in.Size != 4096 {
			t.Fatalf("Bind: %+v, %v", in, err)
		}
	}
	if _, err := s.Bind(ctx, a, nil, nil); !errors.Is(err, ErrExist) {
		t.Errorf("bound twice: %v", err)
	}
	if _, err := s.Bind(ctx, dev.Ino, nil, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a directory is bound: %v", err)
	}
	if _, err := s.Bind(ctx, file("c"), make([]byte, MaxBinding+1), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a binding that is too large: %v", err)
	}
	if _, err := s.Update(ctx, a, func(in *Inode) error { in.Bound = Unbound; return nil }); !errors.Is(err, ErrInvalid) {
		t.Errorf("Update changes the binding: %v", err)
	}
	if bound, err := s.Bindings(ctx); err != nil || len(bound) != 2 || bound[0] != a || bound[1] != b {
		t.Errorf("Bindings: %v, %v", bound, err)
	}
	if value, err := s.Binding(ctx, b); err != nil || string(value) != "\x01" {
		t.Errorf("Binding: %q, %v", value, err)
	}
	checkRebind(t, s, a)
	checkUnbind(t, s, a)
	if _, err := s.Unlink(ctx, dev.Ino, "b"); err != nil {
		t.Fatal(err)
	}
	if bound, err := s.Bindings(ctx); err != nil || len(bound) != 0 {
		t.Errorf("after the last unlink: %v, %v", bound, err)
	}
	if found := problems(t, s); len(found) > 0 {
		t.Errorf("problems: %v", found)
	}
}

// checkRebind replaces the binding of a bound file in each state that it can have.
func checkRebind(t *testing.T, s *Store, a Ino) {
	t.Helper()
	ctx, long := t.Context(), kit.Bytes(1, 0, 5000)
	for _, binding := range [][]byte{long, []byte("short"), nil, []byte("again"), long, nil, nil} {
		in, err := s.Rebind(ctx, a, binding, func(in *Inode) error { in.Allocated++; return nil })
		if err != nil || in.Bound != BoundLive {
			t.Fatalf("Rebind: %+v, %v", in, err)
		}
		got, err := s.Binding(ctx, a)
		if !bytes.Equal(got, binding) || errors.Is(err, ErrNoXattr) != (binding == nil) {
			t.Errorf("the binding has %d bytes, want %d, %v", len(got), len(binding), err)
		}
		if bound, err := s.Bindings(ctx); err != nil || len(bound) != 2 || !slices.Contains(bound, a) {
			t.Errorf("Bindings: %v, %v", bound, err)
		}
		if found := problems(t, s); len(found) > 0 {
			t.Errorf("problems: %v", found)
		}
	}
	err := s.Unbind(ctx, a, true)
	if err == nil {
		_, err = s.Rebind(ctx, a, []byte("found"), nil)
	}
	if got, _ := s.Binding(ctx, a); err != nil || string(got) != "found" {
		t.Errorf("a lost file is bound to %q, %v", got, err)
	}
	if in, err := s.Get(ctx, a); err != nil || in.Allocated != 7 {
		t.Errorf("%d changes were made, want 7: %v", in.Allocated, err)
	}
	if _, err := s.Rebind(ctx, RootIno, nil, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a directory is bound: %v", err)
	}
}

// checkUnbind loses a bound file and makes it an ordinary one.
func checkUnbind(t *testing.T, s *Store, a Ino) {
	t.Helper()
	ctx := t.Context()
	if err := s.Unbind(ctx, a, true); err != nil {
		t.Fatal(err)
	}
	if in, err := s.Get(ctx, a); err != nil || in.Bound != BoundLost || in.Size != 4096 {
		t.Errorf("lost: %+v, %v", in, err)
	}
	if _, err := s.Binding(ctx, a); !errors.Is(err, ErrNoXattr) {
		t.Errorf("the binding of a lost file: %v", err)
	}
	if err := s.Unbind(ctx, a, false); err != nil {
		t.Fatal(err)
	}
	if in, err := s.Get(ctx, a); err != nil || in.Bound != Unbound {
		t.Errorf("unbound: %+v, %v", in, err)
	}
}
