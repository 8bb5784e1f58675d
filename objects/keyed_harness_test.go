package objects_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// keyedRig is a store over a host tier and two cards, with one user.
type keyedRig struct {
	*rig
	user *objects.Holder
	tier devices.Files
}

// me is root.
func me() objects.Caller { return objects.Caller{UID: 0, GID: 0, Groups: []uint32{}} }

// keyedOptions are a test's own options.
type keyedOptions struct {
	hook devfaulty.Hook
	kv   metadata.KV
	now  func() time.Time
}

func newKeyed(t *testing.T, o keyedOptions) *keyedRig {
	t.Helper()
	reg := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true}))
	dev, err := reg.Open(t.Context(), "host,size=128MiB")
	if err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if files, ok := dev.(*host.Device); ok {
			if failure := files.Destroy(); failure != nil {
				t.Error(failure)
			}
		}
	})
	devs := []devices.Device{dev, sim.New(0, small(true)), sim.New(1, small(false))}
	if o.hook != nil {
		for i := range devs {
			devs[i] = devfaulty.Wrap(devs[i], o.hook)
		}
	}
	if o.kv == nil {
		o.kv = memkv.New()
	}
	r := &keyedRig{rig: &rig{t: t, devs: devs}}
	r.tier, _ = devices.FilesOf(devs[0])
	if r.meta, err = metadata.Open(t.Context(), o.kv, metadata.Options{Now: o.now}); err != nil {
		t.Fatal(err)
	}
	if r.engine, err = transport.New(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.user = r.store.NewHolder(me())
	t.Cleanup(r.finish)
	return r
}

// finish removes the remaining objects, which must all be objects of keys.
func (r *keyedRig) finish() {
	ctx := context.Background()
	entries, err := r.store.Keys(ctx, "", 0)
	if err != nil {
		r.t.Error(err)
	}
	for _, e := range entries {
		if err := r.user.Drop(ctx, []string{e.Key})[0]; err != nil {
			r.t.Errorf("drop %q: %v", e.Key, err)
		}
	}
	if err := r.user.Close(ctx); err != nil {
		r.t.Error(err)
	}
	r.noStrays(ctx)
	if err := r.meta.Check(ctx, func(p metadata.Problem) { r.t.Errorf("record: %+v", p) }); err != nil {
		r.t.Error(err)
	}
	r.stop()
}

// again opens the next store, after between has run: the memory of the holders has
// ended.
func (r *keyedRig) again(between func()) {
	r.t.Helper()
	err := r.user.Close(r.ctx())
	if err == nil {
		err = r.store.Close(r.ctx(), objects.CloseOptions{Keep: true})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	between()
	r.reopen()
	r.user = r.store.NewHolder(me())
}

// noStrays fails if there are host files without a record. Objects that have just
// expired lose their record before their file.
func (r *keyedRig) noStrays(ctx context.Context) {
	r.t.Helper()
	kit.Eventually(r.t, within, func() error {
		return r.tier.Each(func(id uint64) error {
			if _, err := r.meta.Get(ctx, objects.Ino(id)); err != nil {
				return fmt.Errorf("host file %d: %w", id, err)
			}
			return nil
		})
	})
}

// memory is memory of a card, registered by the user.
type memory struct {
	rig    *keyedRig
	mem    *devices.Memory
	region *objects.Region
}

// memory allocates n bytes on a card and fills them from a seed.
func (r *keyedRig) memory(card int, n int, seed uint64) *memory {
	r.t.Helper()
	dev := r.devs[card]
	mem, err := dev.Alloc(r.ctx(), devices.Size(n))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(sync.OnceFunc(func() { _ = mem.Release() }))
	m := &memory{rig: r, mem: mem}
	m.fill(seed)
	if m.region, err = r.user.Adopt(r.ctx(), dev.Info().Name, mem); err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (m *memory) whole() devices.Span {
	return devices.Span{Mem: m.mem, Range: devices.Range{Len: m.mem.Size()}}
}

func (m *memory) fill(seed uint64) {
	m.rig.t.Helper()
	if err := m.mem.Device().CopyIn(m.rig.ctx(), m.whole(), kit.Bytes(seed, 0, int(m.mem.Size()))); err != nil {
		m.rig.t.Fatal(err)
	}
}

func (m *memory) bytes() []byte {
	m.rig.t.Helper()
	p := make([]byte, m.mem.Size())
	if err := m.mem.Device().CopyOut(m.rig.ctx(), p, m.whole()); err != nil {
		m.rig.t.Fatal(err)
	}
	return p
}

// blobs are stretches of the memory, each an offset and a length.
func (m *memory) blobs(ranges ...[2]uint64) []objects.Blob {
	all := make([]objects.Blob, len(ranges))
	for i, r := range ranges {
		all[i] = objects.Blob{Region: m.region, Off: r[0], Len: r[1]}
	}
	return all
}

// all is one blob of the whole memory.
func (m *memory) all() []objects.Blob {
	return m.blobs([2]uint64{0, uint64(m.mem.Size())})
}

// gather sets one key, which must succeed.
func (r *keyedRig) gather(key string, o objects.GatherOptions, blobs []objects.Blob) objects.Gathered {
	r.t.Helper()
	one := r.user.Gather(r.ctx(), []objects.Keyed{{Key: key, Blobs: blobs}}, o)[0]
	if one.Err != nil {
		r.t.Fatal(one.Err)
	}
	return one
}

// holds fails unless a key names an object of these bytes.
func (r *keyedRig) holds(key string, want []byte) {
	r.t.Helper()
	ino, err := r.store.KeyIno(r.ctx(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	f := r.open(ino)
	defer r.close(f)
	if size := f.Size(); size != uint64(len(want)) {
		r.t.Fatalf("key %q has %d bytes, not %d", key, size, len(want))
	}
	if d := kit.FirstDiff(r.read(f, 0, len(want)), want); d >= 0 {
		r.t.Fatalf("key %q: byte %d differs", key, d)
	}
}

// absent fails when a key names something.
func (r *keyedRig) absent(key string) {
	r.t.Helper()
	there, err := r.store.KeyThere(r.ctx(), key)
	if err != nil || there {
		r.t.Fatalf("key %q is there: %v, %v", key, there, err)
	}
	if _, err := r.user.KeyInfo(r.ctx(), key); !errors.Is(err, metadata.ErrNotExist) {
		r.t.Fatalf("info of key %q: %v", key, err)
	}
}

// after is a moment some time from now on.
func (r *keyedRig) after(d time.Duration) metadata.Timespec {
	return metadata.TimespecOf(r.meta.Now().Time().Add(d))
}

func manyKeys(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return keys
}
