package objects_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// The first bytes of the keys of attributes, and of inodes that are gone.
const (
	kindXattr = 'x'
	kindGone  = 'z'
)

// attrReads counts the attributes that are read.
type attrReads struct {
	metadata.KV
	n atomic.Int64
}

func (k *attrReads) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	return k.KV.View(ctx, func(t metadata.KVTxn) error { return fn(&attrReadsTxn{t, k}) })
}

func (k *attrReads) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	return k.KV.Update(ctx, func(t metadata.KVTxn) error { return fn(&attrReadsTxn{t, k}) })
}

type attrReadsTxn struct {
	metadata.KVTxn
	of *attrReads
}

func (t *attrReadsTxn) Get(key []byte) ([]byte, error) {
	if key[0] == kindXattr {
		t.of.n.Add(1)
	}
	return t.KVTxn.Get(key)
}

// left counts the records that begin with a byte.
func (k *attrReads) left(t *testing.T, kind byte) (n int) {
	t.Helper()
	err := k.KV.View(t.Context(), func(txn metadata.KVTxn) error {
		return txn.Scan([]byte{kind}, nil, func(_, _ []byte) (bool, error) {
			n++
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestXattrsOfAnOrphan removes an open file without reading its attributes, which
// remain available through its handle until the end.
func TestXattrsOfAnOrphan(t *testing.T) {
	const attrs = 100
	kv := &attrReads{KV: memkv.New()}
	r := &rig{t: t, kv: kv, devs: []devices.Device{sim.New(0, small(false))}}
	r.start()
	t.Cleanup(r.stop)
	ctx := r.ctx()
	f := r.create("sim0", "a")
	value := func(n int) []byte { return fmt.Appendf(nil, "value %d", n) }
	for n := range attrs {
		if err := r.store.SetXattr(ctx, f.Ino(), fmt.Sprint("user.", n), value(n), 0); err != nil {
			t.Fatal(err)
		}
	}
	kv.n.Store(0)
	if err := r.store.Unlink(ctx, r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	if n := kv.n.Load(); n != 0 {
		t.Errorf("the removal has read %d attributes", n)
	}
	got, err := r.store.GetXattr(ctx, f.Ino(), "user.7")
	if err != nil || !slices.Equal(got, value(7)) {
		t.Errorf("user.7 is %q, %v", got, err)
	}
	if err := r.store.RemoveXattr(ctx, f.Ino(), "user.8"); err != nil {
		t.Error(err)
	}
	if _, err := r.store.GetXattr(ctx, f.Ino(), "user.8"); err == nil {
		t.Error("user.8 is still there")
	}
	if err := r.store.SetXattr(ctx, f.Ino(), "user.new", value(0), metadata.XattrCreate); err != nil {
		t.Error(err)
	}
	if names, err := r.store.ListXattr(ctx, f.Ino()); err != nil || len(names) != attrs {
		t.Errorf("%d attributes, %v", len(names), err)
	}
	r.close(f)
	if x, z := kv.left(t, kindXattr), kv.left(t, kindGone); x+z != 0 {
		t.Errorf("%d attributes and %d inodes are left after the last handle", x, z)
	}
}

// TestFirstXattrOfAnOrphan sets an attribute of a file that had none when its name was
// removed.
func TestFirstXattrOfAnOrphan(t *testing.T) {
	kv := &attrReads{KV: memkv.New()}
	r := &rig{t: t, kv: kv, devs: []devices.Device{sim.New(0, small(false))}}
	r.start()
	t.Cleanup(r.stop)
	ctx := r.ctx()
	f := r.create("sim0", "a")
	if err := r.store.Unlink(ctx, r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	if names, err := r.store.ListXattr(ctx, f.Ino()); err != nil || len(names) != 0 {
		t.Errorf("attributes %q, %v", names, err)
	}
	for _, text := range []string{"one", "two"} {
		if err := r.store.SetXattr(ctx, f.Ino(), "user.a", []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if got, err := r.store.GetXattr(ctx, f.Ino(), "user.a"); err != nil || string(got) != text {
			t.Errorf("user.a is %q, %v; want %s", got, err, text)
		}
	}
	r.close(f)
	if x, z := kv.left(t, kindXattr), kv.left(t, kindGone); x+z != 0 {
		t.Errorf("%d attributes and %d inodes are left after the last handle", x, z)
	}
}

// TestOrphanKeepsNoSpareMemory closes a file after its name was removed, while the kernel still refers
// to it: memory that was allocated ahead of writes is freed, as it is with a name.
func TestOrphanKeepsNoSpareMemory(t *testing.T) {
	r := newRig(t, sim.Params{Size: 64 * devices.MiB})
	f := r.create("sim0", "a")
	const size = 5 << 20
	for off := uint64(0); off < size; off += 1 << 20 {
		r.write(f, off, kit.Bytes(1, int64(off), 1<<20))
	}
	if used := r.used("sim0"); used == size {
		t.Fatalf("%v are used: nothing was allocated ahead", used)
	}
	r.store.Reference(f.Ino(), 1)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	r.close(f)
	if used := r.used("sim0"); used != size {
		t.Errorf("%v are used by a file of %v", used, devices.Size(size))
	}
	r.store.Forget(f.Ino(), 1)
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v are used by nothing", used)
	}
}
