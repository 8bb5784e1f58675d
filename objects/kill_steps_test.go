package objects_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// cut stops the goroutine that takes a certain step, as the death of its process would, and
// leaves everything as it is.
type cut struct {
	taken atomic.Int64
	at    int64
	// cut is closed when the step is taken; over lets the goroutine end.
	cut, over chan struct{}
}

func newCut(at int64) *cut {
	return &cut{at: at, cut: make(chan struct{}), over: make(chan struct{})}
}

func (c *cut) step() {
	if c.taken.Add(1) == c.at {
		close(c.cut)
		<-c.over
		runtime.Goexit()
	}
}

// steppedKV takes a step before and after each transaction.
type steppedKV struct {
	metadata.KV
	*cut
}

func (kv steppedKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	kv.step()
	err := kv.KV.Update(ctx, fn)
	kv.step()
	return err
}

// steppedKeeper takes a step before and after each change.
type steppedKeeper struct {
	*keep.Store
	*cut
}

func (k steppedKeeper) Keep(name string, f *os.File) error {
	k.step()
	err := k.Store.Keep(name, f)
	k.step()
	return err
}

func (k steppedKeeper) Drop(name string) error {
	k.step()
	err := k.Store.Drop(name)
	k.step()
	return err
}

// TestKilledAtEveryStep runs a few operations, and stops before and after each copy and
// allocation of a device, each transaction, and each change of what is kept.
func TestKilledAtEveryStep(t *testing.T) {
	kit.Check(t)
	const operations = 14
	for seed := range uint64(3) {
		for at := int64(1); cutAt(t, seed, at, operations) && !t.Failed(); at++ {
		}
	}
}

// cutDevices returns two devices: one whose memory is files of the host, and one with memory of
// its own, in units that don't divide a slab.
func cutDevices(hook faulty.Hook) []devices.Device {
	return []devices.Device{
		faulty.Wrap(sim.New(0, small(false)), hook),
		faulty.WrapOwn(sim.New(1, small(false)), hook, 192*devices.KiB),
	}
}

// cutAt reports whether the operations were cut, and not finished before.
func cutAt(t *testing.T, seed uint64, at int64, operations int) bool {
	c := newCut(1 << 60)
	keeper, kv := newKeeper(t), memkv.New()
	first := &rig{t: t, keeper: steppedKeeper{keeper, c}, kv: steppedKV{kv, c}, devs: cutDevices(func(faulty.Op) error {
		c.step()
		return nil
	})}
	first.start()
	dirtyFreed(first)
	w := &killWorker{killStore: &killStore{store: first.store}, roots: [2]objects.Ino{first.root("sim0"), first.root("sim1")}}
	script, finished := newKillScript(seed, 0), make(chan struct{})
	var progress [killWorkers][2]uint64
	var failed error
	c.taken.Store(0)
	c.at = at
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range operations {
			progress[0][0]++
			if failed = w.do(context.Background(), script.next()); failed != nil {
				break
			}
			progress[0][1]++
		}
		close(finished)
	}()
	cutNow := true
	select {
	case <-c.cut:
	case <-finished:
		cutNow = false
	}
	if failed != nil {
		t.Fatal(failed)
	}
	first.store.Abandon()
	next := &rig{t: t, keeper: keeper, kv: kv, devs: cutDevices(nil)}
	next.start()
	k := &keptRig{rig: next}
	t.Run(fmt.Sprintf("seed%d/step%d", seed, at), func(t *testing.T) {
		next.t = t
		k.checkLeases()
		checkProgress(k.rig, seed, progress)
		next.stop()
	})
	next.t = t
	close(c.over)
	<-done
	for _, d := range first.devs {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	return cutNow
}

// dirtyFreed leaves bytes in memory that the operations get again.
func dirtyFreed(r *rig) {
	for _, dev := range []string{"sim0", "sim1"} {
		f := r.create(dev, "dirt")
		r.write(f, 0, kit.Bytes(99, 0, 900<<10))
		r.close(f)
		if err := r.store.Unlink(r.ctx(), r.root(dev), "dirt"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestKilledWhileStarting is TestKilledAtEveryStep for the start of the store that follows
// one that died.
func TestKilledWhileStarting(t *testing.T) {
	kit.Check(t)
	for seed := range uint64(2) {
		for at := int64(1); startCutAt(t, seed, at) && !t.Failed(); at++ {
		}
	}
}

// startCutAt reports whether the start was cut, and not finished before.
func startCutAt(t *testing.T, seed uint64, at int64) bool {
	keeper, kv := newKeeper(t), memkv.New()
	first := &rig{t: t, keeper: keeper, kv: kv, devs: cutDevices(nil)}
	first.start()
	w := &killWorker{killStore: &killStore{store: first.store}, roots: killRoots(first)}
	script := newKillScript(seed, 0)
	var progress [killWorkers][2]uint64
	for range 14 {
		if err := w.do(t.Context(), script.next()); err != nil {
			t.Fatal(err)
		}
		progress[0][0]++
		progress[0][1]++
	}
	first.store.Abandon()
	c := newCut(at)
	second := &rig{t: t, keeper: steppedKeeper{keeper, c}, kv: steppedKV{kv, c}, devs: cutDevices(func(faulty.Op) error {
		c.step()
		return nil
	})}
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		second.start()
		close(started)
	}()
	wasCut := false
	select {
	case <-c.cut:
		wasCut = true
	case <-started:
		second.store.Abandon()
	}
	third := &rig{t: t, keeper: keeper, kv: kv, devs: cutDevices(nil)}
	third.start()
	(&keptRig{rig: third}).checkLeases()
	checkProgress(third, seed, progress)
	third.stop()
	close(c.over)
	<-done
	for _, d := range append(first.devs, second.devs...) {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.Logf("seed %d, step %d", seed, at)
	}
	return wasCut
}
