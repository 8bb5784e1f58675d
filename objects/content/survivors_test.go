package content

import (
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/transport"
)

// newKeeper makes a keeper that must be empty in the end.
func newKeeper(t *testing.T) *keep.Store {
	t.Helper()
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

// keptTierOf opens a tier of a new device over what the keeper has.
func keptTierOf(t *testing.T, keeper *keep.Store, before metadata.Epoch) *Tier {
	t.Helper()
	dev := sim.New(0, sim.Params{Size: 8 * devices.MiB})
	tier, err := NewKeptTier(dev, arena.Options{SlabSize: devices.MiB}, KeepOptions{Keeper: keeper, Generation: 1, Before: before, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

// TestTwoContentsOfOneInode finds both contents of an object of which one was replacing the
// other: the later one is the object's, whichever entry it has.
func TestTwoContentsOfOneInode(t *testing.T) {
	keeper := newKeeper(t)
	tier := keptTierOf(t, keeper, 0)
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err = engine.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*Extents
	for range 3 {
		x := NewExtents(tier, engine, nil)
		if err = x.Reserve(t.Context(), 0, 4096); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	spec := metadata.Timespec{Sec: -5, Nsec: 999_999_999}
	for i, x := range []*Extents{all[1], all[2], all[0]} {
		f := Facts{Size: uint64(i), Atime: spec, Mtime: metadata.Timespec{Nsec: 1}, Ctime: metadata.Timespec{Sec: 1 << 40}, Epoch: tier.Epoch()}
		if err = x.Keep(77, f, true); err != nil {
			t.Fatal(err)
		}
	}
	epoch := tier.Epoch()
	tier = keptTierOf(t, keeper, epoch)
	if !tier.HasSurvivors() || tier.Epoch() != epoch {
		t.Fatalf("epoch %d, want %d", tier.Epoch(), epoch)
	}
	found := tier.Survivors()
	want := Facts{Size: 2, Atime: spec, Mtime: metadata.Timespec{Nsec: 1}, Ctime: metadata.Timespec{Sec: 1 << 40}, Epoch: epoch}
	if len(found) != 1 || found[0].Ino != 77 || found[0].Facts != want || !found[0].Dirty || found[0].Broken {
		t.Fatalf("found %+v", found)
	}
	sum, err := tier.Revive(t.Context(), found)
	if err != nil || sum.Leased != 4096 || sum.Freed != 8192 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := tier.Close(); err != nil {
		t.Error(err)
	}
}

// TestSaved records a change during a save: the record is older than it.
func TestSaved(t *testing.T) {
	keeper := newKeeper(t)
	tier := keptTierOf(t, keeper, 0)
	x := NewExtents(tier, nil, nil)
	keep := func(size uint64) {
		t.Helper()
		if err := x.Keep(77, Facts{Size: size}, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Reserve(t.Context(), 0, 4096); err != nil {
		t.Fatal(err)
	}
	keep(1)
	changes := x.Changes()
	keep(2)
	x.Saved(changes)
	if found := tier.Survivors(); len(found) != 1 || !found[0].Dirty || found[0].Facts.Size != 2 {
		t.Errorf("found %+v", found)
	}
	x.Saved(x.Changes())
	if found := tier.Survivors(); len(found) != 1 || found[0].Dirty {
		t.Errorf("found %+v", found)
	}
	if err := x.Discard(); err != nil {
		t.Error(err)
	}
	if found := tier.Survivors(); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	if err := tier.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullTable uses all entries of a small device.
func TestFullTable(t *testing.T) {
	keeper := newKeeper(t)
	tier := keptTierOf(t, keeper, 0)
	kt := tier.table(tier.Epoch())
	last := -1
	for range kt.size {
		entry, err := kt.claim()
		if err != nil || entry != last+1 {
			t.Fatalf("entry %d after %d: %v", entry, last, err)
		}
		last = entry
	}
	if _, err := kt.claim(); err == nil {
		t.Error("there is one more entry")
	}
	kt.release(5)
	if entry, err := kt.claim(); entry != 5 || err != nil {
		t.Errorf("entry %d, %v", entry, err)
	}
	if err := tier.Close(); err != nil {
		t.Error(err)
	}
}
