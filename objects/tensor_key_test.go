package objects_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// part is one tensor of bytes of a safetensors file, with the content of a seed.
type part struct {
	name string
	seed uint64
	n    int
}

// safetensors is a file of parts, in their order.
func safetensors(parts ...part) []byte {
	var head, data bytes.Buffer
	for i, p := range parts {
		fmt.Fprintf(&head, `%c"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, ",{"[min(1, 1-min(i, 1))], p.name, p.n, data.Len(), data.Len()+p.n)
		data.Write(kit.Bytes(p.seed, 0, p.n))
	}
	head.WriteByte('}')
	file := binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))
	return append(append(file, head.Bytes()...), data.Bytes()...)
}

// tensorFile makes a file whose tensor "a" has a key.
func (r *keyedRig) tensorFile(name, key string, parts ...part) *objects.File {
	r.t.Helper()
	f := r.create("sim0", name)
	r.write(f, 0, safetensors(parts...))
	if err := r.store.SetTensorKey(r.ctx(), f.Ino(), "a.npy", key, 0); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// gets copies the bytes of a key into memory of a card, and returns them.
func (r *keyedRig) gets(h *objects.Holder, m *memory, key string, replica bool) ([]byte, error) {
	r.t.Helper()
	m.fill(99)
	err := h.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: key, Blobs: m.all()}, Exact: true, Replica: replica})
	return m.bytes(), err
}

// TestTensorKeyCalls makes each call on the key of a tensor.
func TestTensorKeyCalls(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	ctx := r.ctx()
	const n = 5003
	f := r.tensorFile("m.safetensors", "k", part{"b", 1, 777}, part{"a", 2, n})
	defer r.close(f)
	m := r.memory(2, n, 9)
	for _, replica := range []bool{false, true} {
		if got, err := r.gets(r.user, m, "k", replica); err != nil || kit.DiffAt(got, 2, 0) >= 0 {
			t.Errorf("replica %t: %v, byte %d is wrong", replica, err, kit.DiffAt(got, 2, 0))
		}
	}
	info, err := r.user.KeyInfo(ctx, "k")
	if err != nil || info.Attr.Size != n || len(info.Blobs) != 1 || info.Blobs[0] != n || info.Off == 0 {
		t.Errorf("info: %+v, %v", info, err)
	}
	part := objects.Scatter{Keyed: objects.Keyed{Key: "k", Blobs: m.blobs([2]uint64{0, 100})}, Offset: n - 100}
	if err := r.user.Scatter(ctx, part); err != nil || kit.DiffAt(m.bytes()[:100], 2, n-100) >= 0 {
		t.Errorf("the last bytes: %v", err)
	}
	part.Offset++
	if shape := (*objects.ShapeError)(nil); !errors.As(r.user.Scatter(ctx, part), &shape) {
		t.Error("bytes after the tensor were copied")
	}
	set := objects.Keyed{Key: "k", Blobs: m.all()}
	for what, c := range map[string]struct{ err, want error }{
		"expire":             {r.user.Expire(ctx, "k", r.after(time.Minute)), objects.ErrUnsupported},
		"set of other bytes": {r.user.Bind(ctx, []objects.Keyed{set})[0], metadata.ErrExist},
		"gather":             {r.user.Gather(ctx, []objects.Keyed{set}, objects.GatherOptions{Existing: objects.ExistingFail})[0].Err, metadata.ErrExist},
		"drop of own part":   {r.user.DropLocal(ctx, []string{"k"})[0], nil},
		"another tensor":     {r.store.SetTensorKey(ctx, f.Ino(), "b.npy", "k", 0), metadata.ErrExist},
		"a missing tensor":   {r.store.SetTensorKey(ctx, f.Ino(), "c.npy", "c", 0), metadata.ErrNotExist},
		"the file":           {r.store.SetXattr(ctx, f.Ino(), "user.hmc.key", []byte("k"), 0), metadata.ErrExist},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if there, err := r.store.KeyThere(ctx, "k"); !there || err != nil {
		t.Errorf("the key is gone: %v", err)
	}
	// Of several names the oldest one determines the format.
	if _, err := r.store.Link(ctx, f.Ino(), r.root("sim0"), "other.bin"); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Unlink(ctx, r.root("sim0"), "m.safetensors"); err != nil {
		t.Fatal(err)
	}
	r.absent("k")
	if g := r.gather("k", objects.GatherOptions{Existing: objects.ExistingReplace}, m.all()); g.Skipped {
		t.Error("the key was not replaced")
	}
	if err := r.store.Unlink(ctx, r.root("sim0"), "other.bin"); err != nil {
		t.Fatal(err)
	}
	r.holds("k", m.bytes())
}

// TestTensorKeyOfAnotherUser tries what a user without permission can do with the key of a
// tensor.
func TestTensorKeyOfAnotherUser(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	f := r.tensorFile("m.safetensors", "k", part{"a", 2, 100})
	defer r.close(f)
	mode := metadata.Mode(0o600)
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	stranger := r.store.NewHolder(objects.Caller{UID: 4711, GID: 4711, Groups: []uint32{}})
	defer func() { _ = stranger.Close(r.ctx()) }()
	m := r.memory(2, 100, 9)
	info := func() error { _, err := stranger.KeyInfo(r.ctx(), "k"); return err }
	set := []objects.Keyed{{Key: "k", Blobs: m.all()}}
	for what, err := range map[string]error{
		"info": info(), "drop": stranger.Drop(r.ctx(), []string{"k"})[0],
		"scatter": stranger.Scatter(r.ctx(), objects.Scatter{Keyed: set[0]}),
	} {
		if !errors.Is(err, objects.ErrForbidden) {
			t.Errorf("%s by a stranger: %v", what, err)
		}
	}
	mode = 0o644
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	if err := info(); err != nil {
		t.Error(err)
	}
	if err := stranger.Drop(r.ctx(), []string{"k"})[0]; !errors.Is(err, objects.ErrForbidden) {
		t.Errorf("drop by a reader: %v", err)
	}
}

// TestTensorKeyDuringRewrites reads a key while its tensor changes its place in the file.
func TestTensorKeyDuringRewrites(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	const n = 64 << 10
	layouts := [][]byte{
		safetensors(part{"a", 5, n}, part{"b", 6, n}), safetensors(part{"b", 6, n}, part{"a", 5, n}),
	}
	f := r.tensorFile("m.safetensors", "k", part{"a", 5, n}, part{"b", 6, n})
	defer r.close(f)
	m := r.memory(2, n, 9)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := f.WriteAt(context.Background(), layouts[i%2], objects.Write{}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); writer.Wait() })
	defer end()
	for range 100 {
		if got, err := r.gets(r.user, m, "k", false); err != nil || kit.DiffAt(got, 5, 0) >= 0 {
			t.Fatalf("%v, byte %d is not the tensor's", err, kit.DiffAt(got, 5, 0))
		}
	}
	end()
	if _, err := r.gets(r.user, m, "k", false); err != nil {
		t.Error(err)
	}
}

// TestTensorKeyEvents checks that each key that came also goes, whatever races with it.
func TestTensorKeyEvents(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	e := r.store.Listen()
	defer e.Close()
	const rounds = 50
	for i := range rounds {
		f := r.create("sim0", "m.safetensors")
		r.write(f, 0, safetensors(part{"a", 1, 10}))
		var all sync.WaitGroup
		all.Go(func() {
			if err := r.store.SetTensorKey(r.ctx(), f.Ino(), "a.npy", "k", 0); err != nil && !errors.Is(err, metadata.ErrNotExist) {
				t.Error(err)
			}
		})
		all.Go(func() {
			var err error
			if i%2 == 0 {
				err = r.store.Unlink(r.ctx(), r.root("sim0"), "m.safetensors")
			} else {
				err = r.user.Drop(r.ctx(), []string{"k"})[0]
			}
			if err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		r.close(f)
		if i%2 != 0 {
			if err := r.store.Unlink(r.ctx(), r.root("sim0"), "m.safetensors"); err != nil {
				t.Fatal(err)
			}
		}
		r.absent("k")
	}
	// The last event comes after all others.
	last := r.tensorFile("last.safetensors", "last", part{"a", 1, 10})
	r.close(last)
	for there := false; ; {
		ev, err := e.Next(r.ctx())
		switch {
		case err != nil:
			t.Fatal(err)
		case ev.Key == "last":
			if there {
				t.Error("the last event of the key says that it is there")
			}
			return
		case there == (ev.Kind == objects.EventCreated):
			t.Fatalf("%s after there was %t", ev.Kind, there)
		}
		there = !there
	}
}
