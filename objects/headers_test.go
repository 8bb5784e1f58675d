package objects_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/tensors"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// npy is a .npy file of n bytes.
func npy(n uint64) []byte {
	x := tensors.Tensor{Shape: []uint64{n}}
	x.Type, _ = tensors.TypeNamed("uint8")
	return append(x.Header(), kit.Bytes(1, 0, int(n))...)
}

// TestHeadersFollowTheContent checks that a cached header is used as long as the
// content is unchanged, and dropped with the kernel's references.
func TestHeadersFollowTheContent(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "a.npy")
	defer r.close(f)
	r.store.Reference(f.Ino(), 1)
	shape := func() string {
		value, err := r.store.GetXattr(r.ctx(), f.Ino(), "user.hmc.shape")
		if err != nil && !errors.Is(err, metadata.ErrNoXattr) {
			t.Error(err)
		}
		return string(value)
	}
	for n := uint64(100); n < 120; n++ { // several within a tick of the clock
		r.write(f, 0, npy(n))
		found, err := r.store.Tensors(r.ctx(), f.Ino(), "a.npy")
		if err != nil || found.Tensors[0].Len != n || shape() != fmt.Sprint(n) {
			t.Fatalf("%+v, %v, shape %s, want %d bytes", found, err, shape(), n)
		}
	}
	kit.Eventually(t, time.Minute, func() error {
		if _, err := r.store.Tensors(r.ctx(), f.Ino(), "a.npy"); err != nil || shape() != "119" {
			t.Errorf("%v, shape %s", err, shape())
		}
		if n := r.store.HeadersKept(); n != 2 {
			return fmt.Errorf("%d headers are remembered", n)
		}
		return nil
	})
	zero := uint64(0)
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: &zero}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Tensors(r.ctx(), f.Ino(), "a.npy"); !errors.Is(err, tensors.ErrFormat) || shape() != "" {
		t.Errorf("tensors of an empty file: %v, shape %s", err, shape())
	}
	r.store.Forget(f.Ino(), 1)
	if n := r.store.HeadersKept(); n != 0 {
		t.Errorf("%d headers of a forgotten inode are remembered", n)
	}
}

// TestTensorsOfWhatHasNone looks for tensors in files that have none.
func TestTensorsOfWhatHasNone(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "a.bin")
	defer r.close(f)
	for _, name := range []string{"a.bin", ".npy", "a.npy.tensors"} {
		if _, err := r.store.Tensors(r.ctx(), f.Ino(), name); !errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.store.Tensors(r.ctx(), r.root("sim0"), "a.npy"); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
}
