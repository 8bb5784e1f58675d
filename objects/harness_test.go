package objects_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// rig is a store over simulated devices and metadata in memory.
type rig struct {
	t      *testing.T
	store  *objects.Store
	meta   *metadata.Store
	engine *transport.Engine
	devs   []devices.Device
	moves  transport.Options
	// kv keeps the records; nil is one in memory.
	kv metadata.KV
	// guard opens files of users; nil opens them in this process.
	guard *owner.Guard
	// keeper keeps device memory; nil for memory that ends with the store.
	keeper devices.DescriptorStore
	// absent is the time for which the next store waits for sessions. It begins at once, unless late is set.
	absent time.Duration
	// anew has the next store be that of a new mount, with the memory of the one before.
	anew bool
	late bool
}

// params of a small device whose slabs are small too, so that extents split,
// end and meet often.
func small(mapped bool) sim.Params { return sim.Params{Size: 32 * devices.MiB, Mapped: mapped} }

func newRig(t *testing.T, params ...sim.Params) *rig {
	t.Helper()
	r := &rig{t: t, keeper: keeperFromEnv(t)}
	for i, p := range params {
		r.devs = append(r.devs, sim.New(devices.Ordinal(i), p))
	}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// wrapped is newRig over devices made by the caller.
func wrapped(t *testing.T, devs ...devices.Device) *rig {
	t.Helper()
	return moving(t, transport.Options{}, devs...)
}

// moving is wrapped with an engine of its own kind.
func moving(t *testing.T, o transport.Options, devs ...devices.Device) *rig {
	t.Helper()
	r := &rig{t: t, devs: devs, moves: o, keeper: keeperFromEnv(t)}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// keeperFromEnv returns a keeper if the whole suite is to run with one.
func keeperFromEnv(t *testing.T) devices.DescriptorStore {
	if os.Getenv("HMCFS_TEST_KEEP") == "" {
		return nil
	}
	return newKeeper(t)
}

// newKeeper makes a keeper that must be empty in the end.
func newKeeper(t *testing.T) *keep.Store {
	k := &keep.Store{}
	t.Cleanup(func() {
		if n := k.Len(); n != 0 {
			t.Errorf("%d descriptors are still kept", n)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.kv == nil {
		r.kv = memkv.New()
	}
	if r.meta, err = metadata.Open(r.ctx(), r.kv, metadata.Options{KeepNameless: r.keeper != nil}); err != nil {
		r.t.Fatal(err)
	}
	if r.engine, err = transport.New(r.moves); err != nil {
		r.t.Fatal(err)
	}
	r.reopen()
}

// reopen makes a new store over the same records and devices, as the next
// mount does.
func (r *rig) reopen() {
	r.t.Helper()
	var err error
	r.store, err = objects.Open(r.ctx(), objects.Options{
		Meta: r.meta, Engine: r.engine, Devices: r.devs, Guard: r.guard, Keeper: r.keeper, Resumes: !r.anew, Absent: r.absent,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.late {
		r.store.AwaitOwners()
	}
}

func (r *rig) stop() {
	if err := r.store.Close(context.Background(), objects.CloseOptions{}); err != nil {
		r.t.Error(err)
	}
	if err := r.engine.Close(); err != nil {
		r.t.Error(err)
	}
	for _, d := range r.devs {
		if u, err := d.Usage(); err != nil || u.Used != 0 {
			r.t.Errorf("%s: %v in use after the store closed, %v", d.Info().Name, u.Used, err)
		}
		if err := d.Close(); err != nil {
			r.t.Error(err)
		}
	}
	if err := r.meta.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) ctx() context.Context { return r.t.Context() }

// root is the directory of a device.
func (r *rig) root(name string) objects.Ino {
	r.t.Helper()
	a, err := r.store.Lookup(r.ctx(), metadata.RootIno, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

// create makes a file on a device and opens it.
func (r *rig) create(device, name string) *objects.File {
	r.t.Helper()
	a, err := r.store.Create(r.ctx(), r.root(device), name, metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.open(a.Ino)
}

func (r *rig) open(ino objects.Ino) *objects.File {
	r.t.Helper()
	f, err := r.store.OpenFile(r.ctx(), ino)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) close(f *objects.File) {
	r.t.Helper()
	if err := f.Close(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(f *objects.File, off uint64, p []byte) {
	r.t.Helper()
	n, err := f.WriteAt(r.ctx(), p, objects.Write{Off: off})
	if err != nil || n != len(p) {
		r.t.Fatalf("write %d bytes at %d: %d, %v", len(p), off, n, err)
	}
}

func (r *rig) read(f *objects.File, off uint64, n int) []byte {
	r.t.Helper()
	p := make([]byte, n)
	got, err := f.ReadAt(r.ctx(), p, off)
	if err != nil {
		r.t.Fatalf("read %d bytes at %d: %v", n, off, err)
	}
	return p[:got]
}

func (r *rig) attr(ino objects.Ino) objects.Attr {
	r.t.Helper()
	a, err := r.store.Attr(r.ctx(), ino)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// used returns what df shows of a device.
func (r *rig) used(name devices.Name) devices.Size {
	r.t.Helper()
	all, err := r.store.Devices(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range all {
		if d.Info.Name == name {
			return d.Usage.Used
		}
	}
	r.t.Fatalf("no device %s", name)
	return 0
}
