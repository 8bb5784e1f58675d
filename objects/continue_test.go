package objects_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// lastingSize is the size of the memory of each session.
const lastingSize = 1 << 20

// lasting is a session whose memory is a file, which outlives the store.
type lasting struct {
	*objects.Holder
	rig    *rig
	region *objects.Region
}

// lasting begins or continues a session, and registers memory by a number.
func (r *rig) lasting(name string, f *os.File, number uint64) *lasting {
	r.t.Helper()
	return r.lastingOn("sim0", name, f, number)
}

// lastingOn is lasting with memory on a device.
func (r *rig) lastingOn(device devices.Name, name string, f *os.File, number uint64) *lasting {
	r.t.Helper()
	first := 0
	m := share.Memory{Family: "sim", Size: lastingSize, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: lastingSize}}}
	handles, err := objects.HandlesOf(m, []*os.File{f})
	if err != nil {
		r.t.Fatal(err)
	}
	l := &lasting{Holder: r.store.NewSession(objects.Caller{}, name), rig: r}
	if l.region, err = l.Register(r.ctx(), device, objects.BindRequest{Memory: m, Handles: handles}); err != nil {
		r.t.Fatal(err)
	}
	l.region.SetNumber(number)
	return l
}

func (l *lasting) part(key string, off, n uint64) objects.Keyed {
	return objects.Keyed{Key: key, Blobs: []objects.Blob{{Region: l.region, Off: off, Len: n}}}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestContinue kills a store whose sessions have keys and publications.
func TestContinue(t *testing.T) {
	const n = lastingSize
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent = 3 * time.Second
	mine, stale, other := kit.Memfd(t, 1, n), kit.Memfd(t, 2, n), kit.Memfd(t, 3, n)
	call := objects.WithCall(k.ctx(), 7, false)
	a, b := k.lasting("a", mine, 4), k.lasting("b", stale, 4)
	for _, err := range append(a.Bind(call, []objects.Keyed{a.part("key", 1000, 5000), a.part("gone", 0, 10)}), b.Bind(call, []objects.Keyed{b.part("lost", 0, 100)})...) {
		noError(t, err)
	}
	d := k.lasting("d", stale, 1)
	noError(t, errors.Join(d.Bind(call, []objects.Keyed{d.part("theirs", 0, 100)})...))
	noError(t, a.Drop(call, []string{"gone"})[0])
	_, errs := a.Publish(call, []objects.Keyed{a.part("waits", 100, 300), a.part("received", 100, 300)})
	noError(t, errors.Join(errs...))
	c := k.lasting("c", other, 1)
	noError(t, c.Receive(objects.WithCall(k.ctx(), 9, false), c.part("received", 0, 300)))

	k.killAnd(func() {})
	c = k.lasting("c", other, 1)
	soon, cancel := context.WithTimeout(k.ctx(), 50*time.Millisecond)
	defer cancel()
	if err := c.Scatter(soon, objects.Scatter{Keyed: c.part("key", 0, 5000)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a key whose owner is not there: %v", err)
	}
	k.store.NewSession(objects.Caller{UID: 7}, "d").Continue(k.ctx())
	if err := c.Scatter(k.ctx(), objects.Scatter{Keyed: c.part("theirs", 0, 100)}); !errors.Is(err, objects.ErrLost) {
		t.Errorf("a key whose session another user has continued: %v", err)
	}
	late := make(chan error, 1)
	go func() { late <- c.Scatter(k.ctx(), objects.Scatter{Keyed: c.part("lost", 5000, 100)}) }()
	a = k.lasting("a", mine, 4)
	a.Continue(k.ctx())
	again := objects.WithCall(k.ctx(), 7, true)
	signals, errs := a.Publish(again, []objects.Keyed{a.part("waits", 100, 300), a.part("received", 100, 300)})
	noError(t, errors.Join(errs...))
	noError(t, signals[1].Wait(k.ctx()))
	noError(t, errors.Join(a.Bind(again, []objects.Keyed{a.part("key", 1000, 5000)})...))
	if !c.Received(objects.WithCall(k.ctx(), 9, true), "received") || c.Received(objects.WithCall(k.ctx(), 8, true), "received") {
		t.Error("the receipt of a publication is not that of its call")
	}
	noError(t, c.Scatter(k.ctx(), objects.Scatter{Keyed: c.part("key", 0, 5000)}))
	noError(t, c.Receive(k.ctx(), c.part("waits", 6000, 300)))
	noError(t, signals[0].Wait(k.ctx()))
	got := make([]byte, n)
	_, err := other.ReadAt(got, 0)
	noError(t, err)
	if at := kit.DiffAt(got[:5000], 1, 1000); at >= 0 {
		t.Errorf("a key has other bytes from %d on", at)
	}
	if at := kit.DiffAt(got[6000:6300], 1, 100); at >= 0 {
		t.Errorf("a publication has other bytes from %d on", at)
	}
	if err := c.Scatter(k.ctx(), objects.Scatter{Keyed: c.part("gone", 0, 10)}); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("a key that was removed: %v", err)
	}
	if err := <-late; !errors.Is(err, objects.ErrLost) {
		t.Errorf("a key whose owner did not come back: %v", err)
	}
	noError(t, errors.Join(a.Close(k.ctx()), c.Close(k.ctx())))
	if err := k.store.NewHolder(objects.Caller{}).Scatter(k.ctx(), objects.Scatter{Keyed: a.part("key", 0, 5000)}); err == nil {
		t.Error("a key has outlived its session")
	}
}

// TestReplicaContinues has a replica take over an object, on its device and on another one, while each commit in turn fails, and kills
// the store then: the object is the replica's or lost, and never the memory that its owner has back.
func TestReplicaContinues(t *testing.T) {
	for name, c := range map[string]struct {
		device  devices.Name
		commits int
	}{
		"on its device":     {"sim0", 1},
		"on another device": {"sim1", 4}, // with that which makes the directory of keyed objects
	} {
		t.Run(name, func(t *testing.T) {
			for failed := 0; ; failed++ { // 0 is none
				commits := takesOver(t, c.device, failed)
				if failed == 0 && commits != c.commits {
					t.Errorf("%d commits, want %d", commits, c.commits)
				}
				if failed > commits {
					break
				}
			}
		})
	}
}

// takesOver is TestReplicaContinues with one commit that fails. It returns their number.
func takesOver(t *testing.T, device devices.Name, failed int) (commits int) {
	t.Helper()
	k := &keptRig{keeper: newKeeper(t), params: []sim.Params{{Size: 32 << 20}, {Size: 32 << 20}}}
	k.rig = &rig{t: t, keeper: k.keeper, absent: 3 * time.Second}
	counts := false
	k.kv = faulty.Wrap(memkv.New(), func(op faulty.Op) error {
		if counts && op == faulty.Commit {
			if commits++; commits == failed {
				return faulty.ErrInjected
			}
		}
		return nil
	})
	k.devs = k.newDevices()
	k.start()
	defer k.stop()
	memory, theirs := kit.Memfd(t, 1, lastingSize), kit.Memfd(t, 2, lastingSize)
	a, b := k.lasting("a", memory, 1), k.lastingOn(device, "b", theirs, 1)
	noError(t, errors.Join(a.Bind(k.ctx(), []objects.Keyed{a.part("key", 1000, 5000)})...))
	noError(t, b.Scatter(k.ctx(), objects.Scatter{Keyed: b.part("key", 2000, 5000), Replica: true}))
	counts = true
	err := a.DropLocal(k.ctx(), []string{"key"})[0]
	counts = false
	if failed == 0 {
		noError(t, err)
	}
	dropped := err == nil
	if dropped { // a program may do so then
		_, err = memory.WriteAt(kit.Bytes(3, 0, lastingSize), 0)
		noError(t, err)
	}
	k.killAnd(func() {})
	a, b = k.lasting("a", memory, 1), k.lastingOn(device, "b", theirs, 1)
	a.Continue(k.ctx())
	b.Continue(k.ctx())
	into := kit.Memfd(t, 4, lastingSize)
	reader := k.lasting("c", into, 1)
	err = reader.Scatter(k.ctx(), objects.Scatter{Keyed: reader.part("key", 0, 5000)})
	switch {
	case err == nil:
		got := make([]byte, 5000)
		_, err = into.ReadAt(got, 0)
		noError(t, err)
		if at := kit.DiffAt(got, 1, 1000); at >= 0 {
			t.Errorf("with commit %d of %d failing, the key has other bytes from %d on", failed, commits, at)
		}
	case failed == 0 || !errors.Is(err, objects.ErrLost) && !errors.Is(err, metadata.ErrNotExist):
		t.Errorf("with commit %d of %d failing, the key is %v", failed, commits, err)
	}
	noError(t, errors.Join(a.Close(k.ctx()), b.Close(k.ctx()), reader.Close(k.ctx())))
	return commits
}
