package objects_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// redoBit marks the numbers of redo files.
const redoBit = uint64(1) << 63

// redoRecord returns the content of a redo file.
func redoRecord(ino metadata.Ino, size int) []byte {
	p := binary.LittleEndian.AppendUint64([]byte("hmcredo1"), uint64(ino))
	return binary.LittleEndian.AppendUint64(p, uint64(size))
}

// put makes a file of the host tier.
func (r *keyedRig) put(id uint64, p []byte) {
	r.t.Helper()
	f, err := r.tier.Open(id, true)
	if err == nil {
		_, err = f.WriteAt(p, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestRedo opens a store after a daemon died while it copied a draft over a file of the
// host tier, and with redo files that are not valid.
func TestRedo(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	const size = 300_000
	old, fresh := kit.Bytes(1, 0, size), kit.Bytes(2, 0, size)
	type left struct {
		draft  []byte // nil is none
		record []byte
		want   []byte
	}
	f := r.create("host", "f")
	ino := f.Ino()
	r.close(f)
	other := r.create("sim0", "g")
	elsewhere := other.Ino()
	r.close(other)
	for name, l := range map[string]left{
		"whole":              {fresh, redoRecord(ino, size), fresh},
		"shorter":            {fresh[:1000], redoRecord(ino, 1000), fresh[:1000]},
		"longer":             {append(bytes.Clone(fresh), fresh...), redoRecord(ino, 2*size), append(bytes.Clone(fresh), fresh...)},
		"empty":              {[]byte{}, redoRecord(ino, 0), []byte{}},
		"not begun":          {fresh, make([]byte, len(redoRecord(0, 0))), old},
		"cut":                {fresh, redoRecord(ino, size)[:23], old},
		"nothing":            {fresh, nil, old},
		"over already":       {nil, redoRecord(ino, size), old},
		"of another length":  {fresh, redoRecord(ino, size-1), old},
		"of a removed file":  {fresh, redoRecord(1<<40, size), old},
		"of the root":        {fresh, redoRecord(metadata.RootIno, size), old},
		"on another device":  {fresh, redoRecord(elsewhere, size), old},
		"of another version": {fresh, append([]byte("hmcredo2"), redoRecord(ino, size)[8:]...), old},
	} {
		t.Run(name, func(t *testing.T) {
			f := r.open(ino)
			if _, err := r.store.SetAttr(t.Context(), ino, objects.Change{Size: new(uint64)}); err != nil {
				t.Fatal(err)
			}
			r.write(f, 0, old)
			r.close(f)
			numbers, err := r.meta.NewInos(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			draft := uint64(numbers[0])
			r.again(func() {
				if l.draft != nil {
					r.put(draft, l.draft)
				}
				r.put(draft|redoBit, l.record)
			})
			f = r.open(ino)
			if got := r.read(f, 0, 2*size+1); !bytes.Equal(got, l.want) {
				t.Errorf("%d bytes, want %d; they differ at %d", len(got), len(l.want), kit.FirstDiff(got, l.want))
			}
			r.close(f)
			r.noStrays(t.Context())
		})
	}
	for _, device := range []struct{ name, file string }{{"host", "f"}, {"sim0", "g"}} {
		if err := r.store.Unlink(t.Context(), r.root(device.name), device.file); err != nil {
			t.Fatal(err)
		}
	}
}

// ending is a context that ends after a number of calls.
type ending struct {
	context.Context //nolint:containedctx // the type is a context itself

	left atomic.Int64
	stop context.CancelFunc
}

func (e *ending) Err() error {
	if e.left.Add(-1) == 0 {
		e.stop()
	}
	return e.Context.Err()
}

// TestRedoIsStopped: a daemon that is stopped while it repeats a copy leaves that to
// the next one.
func TestRedoIsStopped(t *testing.T) {
	r := newKeyed(t, keyedOptions{})
	const size = 9 << 20 // some steps
	old, fresh := kit.Bytes(1, 0, size), kit.Bytes(2, 0, size)
	f := r.create("host", "f")
	ino := f.Ino()
	r.close(f)
	stopped := 0
	for n := int64(1); ; n++ {
		f = r.open(ino)
		r.write(f, 0, old)
		r.close(f)
		numbers, err := r.meta.NewInos(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		r.again(func() {
			r.put(uint64(numbers[0]), fresh)
			r.put(uint64(numbers[0])|redoBit, redoRecord(ino, size))
			ctx := &ending{}
			ctx.Context, ctx.stop = context.WithCancel(t.Context())
			defer ctx.stop()
			ctx.left.Store(n)
			s, failure := objects.Open(ctx, objects.Options{
				Meta: r.meta, Engine: r.engine, Devices: r.devs, Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
			})
			if failure != nil {
				stopped++
				return
			}
			n = -1
			if err = s.Close(t.Context(), objects.CloseOptions{Keep: true}); err != nil {
				t.Fatal(err)
			}
		})
		f = r.open(ino)
		if got := r.read(f, 0, size+1); !bytes.Equal(got, fresh) {
			t.Errorf("stopped %d times: %d bytes differ at %d", stopped, len(got), kit.FirstDiff(got, fresh))
		}
		r.close(f)
		r.noStrays(t.Context())
		if n < 0 {
			break
		}
	}
	if stopped == 0 {
		t.Error("it was never stopped")
	}
	if err := r.store.Unlink(t.Context(), r.root("host"), "f"); err != nil {
		t.Fatal(err)
	}
}
