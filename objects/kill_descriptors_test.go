package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestKilledBetweenDescriptors stops before and after each descriptor that is kept or dropped, while
// slabs come and go. The processes that follow, two of them, find the other files.
func TestKilledBetweenDescriptors(t *testing.T) {
	kit.Check(t)
	for at := int64(1); descriptorsCutAt(t, at) && !t.Failed(); at++ {
	}
}

// descriptorsCutAt reports whether the operations were cut, and not finished before.
func descriptorsCutAt(t *testing.T, at int64) (cutNow bool) {
	const large = 1500 << 10 // a slab of its own
	c, keeper, kv := newCut(1<<60), newKeeper(t), memkv.New()
	first := &rig{t: t, keeper: steppedKeeper{keeper, c}, kv: kv, devs: cutDevices(nil)}
	first.start()
	for i, dev := range []string{"sim0", "sim1"} {
		f := first.create(dev, "stays")
		first.write(f, 0, kit.Bytes(uint64(i), 0, 5000))
		first.close(f)
	}
	var files []*objects.File
	for i := range 8 {
		files = append(files, first.create(fmt.Sprintf("sim%d", i%2), fmt.Sprint(i)))
	}
	c.taken.Store(0)
	c.at = at
	done := make(chan error, 1)
	go func() {
		var errs []error
		defer func() { done <- errors.Join(errs...) }()
		for i, f := range files {
			_, err := f.WriteAt(t.Context(), kit.Bytes(9, int64(i), large), objects.Write{})
			errs = append(errs, err)
		}
		for i, f := range files { // more than is retained
			errs = append(errs, f.Close(t.Context()), first.store.Unlink(t.Context(), first.root(fmt.Sprintf("sim%d", i%2)), fmt.Sprint(i)))
		}
	}()
	select {
	case <-c.cut:
		cutNow = true
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	}
	first.store.Abandon()
	abandoned := first.devs
	for last := range 2 {
		next := &rig{t: t, keeper: keeper, kv: kv, devs: cutDevices(nil)}
		next.start()
		(&keptRig{rig: next}).checkLeases()
		next.checkStays(at)
		if last == 1 {
			next.stop()
			continue
		}
		next.store.Abandon()
		abandoned = append(abandoned, next.devs...)
	}
	close(c.over)
	if cutNow {
		if err := <-done; err != nil {
			t.Errorf("before the cut: %v", err)
		}
	}
	for _, d := range abandoned {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	return cutNow
}

// checkStays reads the files that are there all the time.
func (r *rig) checkStays(at int64) {
	r.t.Helper()
	for i, dev := range []string{"sim0", "sim1"} {
		a, err := r.store.Lookup(r.t.Context(), r.root(dev), "stays")
		if err != nil {
			r.t.Fatalf("step %d: %s: %v", at, dev, err)
		}
		f, want := r.open(a.Ino), kit.Bytes(uint64(i), 0, 5000)
		if got := r.read(f, 0, len(want)); !bytes.Equal(got, want) {
			r.t.Errorf("step %d: %s differs at %d", at, dev, kit.FirstDiff(got, want))
		}
		r.close(f)
	}
}
