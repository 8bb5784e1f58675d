package objects_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

var errStart = errors.New("this step of the start fails")

// failing counts the steps of a start. step returns what the one with the number at does.
type failing struct {
	taken atomic.Int64
	at    int64
	fails func() error
}

func (f *failing) step() error {
	if f.taken.Add(1) == f.at {
		return f.fails()
	}
	return nil
}

// failingKV is records whose transactions are steps.
type failingKV struct {
	metadata.KV
	*failing
}

func (kv failingKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.step(); err != nil {
		return err
	}
	return kv.KV.Update(ctx, fn)
}

func (kv failingKV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.step(); err != nil {
		return err
	}
	return kv.KV.View(ctx, fn)
}

// failingKeeper is a keeper whose calls are steps.
type failingKeeper struct {
	*keep.Store
	*failing
}

func (k failingKeeper) Keep(name string, f *os.File) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.Store.Keep(name, f)
}

func (k failingKeeper) Kept(prefix string) (map[string]*os.File, error) {
	if err := k.step(); err != nil {
		return nil, err
	}
	return k.Store.Kept(prefix)
}

func (k failingKeeper) Drop(name string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.Store.Drop(name)
}

// startFailing opens a store whose step fails, and leaves it if it has opened nevertheless. It
// reports whether there was such a step.
func (k *keptRig) startFailing(ctx context.Context, f *failing) bool {
	k.t.Helper()
	at := f.at
	f.at = 0 // not of the records
	meta, err := metadata.Open(ctx, failingKV{k.kv, f}, metadata.Options{KeepNameless: true})
	if err != nil {
		k.t.Fatal(err)
	}
	f.taken.Store(0)
	f.at = at
	engine, err := transport.New(k.moves)
	if err != nil {
		k.t.Fatal(err)
	}
	var devs []devices.Device
	for i, p := range k.params {
		devs = append(devs, faulty.Wrap(sim.New(devices.Ordinal(i), p), func(faulty.Op) error { return f.step() }))
	}
	store, err := objects.Open(ctx, objects.Options{
		Meta: meta, Engine: engine, Devices: devs, Keeper: failingKeeper{k.keeper, f},
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	if err == nil {
		err = store.Close(ctx, objects.CloseOptions{Keep: true, Leave: true})
	}
	if err != nil && !errors.Is(err, errStart) && !errors.Is(err, context.Canceled) {
		k.t.Errorf("step %d: %v", f.at, err)
	}
	there := f.taken.Swap(f.at) >= f.at // and no more of them fail
	if err = engine.Close(); err != nil {
		k.t.Error(err)
	}
	for _, d := range devs {
		if u, err := d.Usage(); err != nil || u.Used != 0 {
			k.t.Errorf("step %d: %v of %s in use after the start, %v", f.at, u.Used, d.Info().Name, err)
		}
		if err := d.Close(); err != nil {
			k.t.Error(err)
		}
	}
	return there
}

// keptFiles makes files of each kind on both devices.
func (k *keptRig) keptFiles(content []byte) (files []*objects.File, orphans []objects.Ino) {
	k.t.Helper()
	for _, dev := range []string{"sim0", "sim1"} {
		for _, name := range []string{"open", "closed", "nameless"} {
			f := k.create(dev, name)
			k.write(f, 5000, content)
			files = append(files, f)
		}
		last := len(files) - 1
		k.close(files[last-1])
		if err := k.store.Unlink(k.ctx(), k.root(dev), "nameless"); err != nil {
			k.t.Fatal(err)
		}
		orphans = append(orphans, files[last].Ino())
	}
	return files, orphans
}

// failEach starts stores of which each fails at another step.
func (k *keptRig) failEach(cancels bool) {
	k.t.Helper()
	for at, there := int64(1), true; there; at++ {
		ctx, cancel := context.WithCancel(k.ctx())
		there = k.startFailing(ctx, &failing{at: at, fails: func() error {
			if cancels {
				cancel()
				return nil
			}
			return errStart
		}})
		cancel()
	}
}

// TestStartsThatFail fails at each step of a start: the next one has everything.
func TestStartsThatFail(t *testing.T) {
	for name, cancels := range map[string]bool{"error": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			k := newKeptRig(t, small(false), small(false))
			crash(k.devs[1]) // the records are of an epoch before that of the table
			want := kit.Bytes(1, 0, 1<<20+70_000)
			files, orphans := k.keptFiles(want)
			k.killAnd(func() { k.failEach(cancels) })
			k.checkLeases()
			if got := k.store.Orphans(); !slices.Equal(got, orphans) {
				t.Errorf("orphans %v, want %v", got, orphans)
			}
			for _, f := range files {
				f = k.rig.open(f.Ino())
				if got := k.read(f, 5000, len(want)); !bytes.Equal(got, want) {
					t.Errorf("object %d differs at %d", f.Ino(), kit.FirstDiff(got, want))
				}
				k.close(f)
			}
			k.store.ReleaseUnclaimed(k.ctx())
		})
	}
}
