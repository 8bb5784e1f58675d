package objects_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// host is a host tier of 128 MiB, which ends with the test.
func hostTier(t *testing.T) devices.Device {
	t.Helper()
	reg := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true}))
	tier, err := reg.Open(t.Context(), "host,size=128MiB")
	if err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if files, ok := tier.(*host.Device); ok {
			if err := files.Destroy(); err != nil {
				t.Error(err)
			}
		}
	})
	return tier
}

// hostAndCard is a store over a host tier and a card that registers its files.
func hostAndCard(t *testing.T, p sim.Params, o transport.Options) (*rig, *sim.PinnedDevice) {
	t.Helper()
	tier := hostTier(t)
	p.Pinned = true
	card, ok := sim.New(0, p).(*sim.PinnedDevice)
	if !ok {
		t.Fatal("not a card that registers")
	}
	t.Cleanup(func() {
		if n, fault := card.Pins(); fault != nil || n.Ranges != 0 {
			t.Errorf("registered memory left behind: %+v, fault %v", n, fault)
		}
	})
	return moving(t, o, tier, card), card
}

// TestRandomOperationsRegistered is TestRandomOperations with ranges that are
// long enough for the card to register the host tier's pages.
func TestRandomOperationsRegistered(t *testing.T) {
	kit.Check(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r, _ := hostAndCard(t, sim.Params{Size: 128 * devices.MiB}, transport.Options{
		RegisterFrom: 1, MaxRegistered: 4 * devices.MiB,
	})
	m := &model{
		rng: rand.New(rand.NewPCG(seed, 1)), max: 5 << 20, longest: 3 << 20, copies: 20,
		devs: []string{"host", "sim0"}, rig: r,
	}
	// One that is registered in any case: the random ones may all be short, or
	// of holes. finish removes the files.
	from, to := r.create("host", "from"), r.create("sim0", "to")
	r.write(from, 0, kit.Bytes(1, 0, m.longest))
	if _, err := r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: to, Src: from, N: uint64(m.longest)}); err != nil {
		t.Fatal(err)
	}
	r.close(from)
	r.close(to)
	m.run(800)
	t.Logf("%+v", r.engine.Stats().Registered)
	if s := r.engine.Stats().Registered; s.DirectBytes == 0 || s.Failures != 0 || s.Stale != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// churn rewrites one host file again and again: every round is cut to nothing,
// or to a part, and written anew.
type churn struct {
	*rig
	file *objects.File
	size int
	// begun and done are the rounds; the bytes of a round are those of its
	// number.
	begun, done atomic.Uint64
}

func (c *churn) round(rng *rand.Rand) error {
	g := c.begun.Add(1)
	cut := uint64(0)
	if rng.IntN(2) == 0 {
		cut = rng.Uint64N(uint64(c.size))
	}
	_, err := c.store.SetAttr(c.ctx(), c.file.Ino(), objects.Change{Size: &cut})
	if err == nil && rng.IntN(2) == 0 {
		err = c.file.Allocate(c.ctx(), objects.AllocatePunch, 0, uint64(c.size))
	}
	if err == nil {
		_, err = c.file.WriteAt(c.ctx(), kit.Bytes(g, 0, c.size), objects.Write{})
	}
	c.done.Store(g)
	return err
}

// fresh checks that every byte of a copy is a zero, or of a round that was not
// over before the copy began.
func (c *churn) fresh(got []byte, oldest uint64) error {
	const block = 512
	for off := 0; off < len(got); off += block {
		part := got[off:min(off+block, len(got))]
		for i, b := range part {
			good := b == 0
			for g := oldest; !good && g <= c.begun.Load(); g++ {
				if kit.DiffAt(part, g, int64(off)) < 0 {
					i, good = len(part), true
				} else {
					good = kit.Bytes(g, int64(off+i), 1)[0] == b
				}
			}
			if !good {
				return fmt.Errorf("byte %d is of no round since %d", off+i, oldest)
			}
			if i == len(part) {
				break
			}
		}
	}
	return nil
}

// TestShrinkingSource copies a host file to a card, and back over another file, while
// the source is truncated, punched and rewritten. An access to a removed page ends the
// test by SIGBUS; a stale page shows old bytes.
func TestShrinkingSource(t *testing.T) {
	kit.Check(t)
	const size = 9 << 20
	r, card := hostAndCard(t, sim.Params{Size: 64 * devices.MiB, Bandwidth: 500e6}, transport.Options{RegisterFrom: devices.MiB})
	c := &churn{rig: r, file: r.create("host", "source"), size: size}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	if err := c.round(rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Fatal(err)
	}
	rounds := 40
	if testing.Short() || kit.Race() {
		rounds = 12
	}
	var stop atomic.Bool
	var copiers sync.WaitGroup
	for i := range 2 {
		onCard, back := r.create("sim0", fmt.Sprint("card", i)), r.create("host", fmt.Sprint("back", i))
		copiers.Go(func() {
			for !stop.Load() {
				c.copyOnce(onCard, back)
			}
			r.close(onCard)
			r.close(back)
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		if err := c.round(rng); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	copiers.Wait()
	r.close(c.file)
	for _, name := range []string{"source", "back0", "back1"} {
		if err := r.store.Unlink(r.ctx(), r.root("host"), name); err != nil {
			t.Error(err)
		}
	}
	if s := r.engine.Stats().Registered; s.DirectBytes == 0 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
	if _, fault := card.Pins(); fault != nil {
		t.Error(fault)
	}
}

// copyOnce copies the source to the card and from there to another file, and checks the
// result.
func (c *churn) copyOnce(onCard, back *objects.File) {
	c.t.Helper()
	oldest := c.done.Load()
	n, err := c.store.CopyRange(c.ctx(), objects.CopyRange{Dst: onCard, Src: c.file, N: uint64(c.size)})
	// The file may end before the copy does.
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.t.Error(err)
	}
	got, err := c.store.CopyRange(c.ctx(), objects.CopyRange{Dst: back, Src: onCard, N: n})
	if err != nil || got != n {
		c.t.Errorf("copy back %d bytes of %d: %v", got, n, err)
	}
	p := make([]byte, n)
	if read, err := back.ReadAt(context.Background(), p, 0); err != nil || read != len(p) {
		c.t.Errorf("read %d bytes of %d: %v", read, n, err)
	}
	if err := c.fresh(p, oldest); err != nil {
		c.t.Error(err)
	}
}

// TestExportedIsNotRegistered exports a host file: other processes may truncate it, so
// no card keeps its pages registered.
func TestExportedIsNotRegistered(t *testing.T) {
	kit.Check(t)
	const size = 9 << 20
	r, _ := hostAndCard(t, sim.Params{Size: 64 * devices.MiB}, transport.Options{})
	file, onCard := r.create("host", "file"), r.create("sim0", "card")
	r.write(file, 0, kit.Bytes(1, 0, size))
	copyAll := func() transport.RegisteredStats {
		t.Helper()
		if n, err := r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: onCard, Src: file, N: size}); n != size || err != nil {
			t.Fatalf("copied %d bytes, %v", n, err)
		}
		return r.engine.Stats().Registered
	}
	if s := copyAll(); s.Bytes == 0 {
		t.Errorf("%+v", s)
	}
	given, err := r.store.Export(r.ctx(), file.Ino(), objects.Caller{}, objects.ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := copyAll(); s.Bytes != 0 || s.Registered != 2 {
		t.Errorf("exported: %+v", s)
	}
	if err = errors.Join(r.store.EndExport(r.ctx(), file.Ino()), given.Handle.File.Truncate(4096)); err != nil {
		t.Fatal(err)
	}
	r.write(file, 0, kit.Bytes(2, 0, size))
	if s := copyAll(); s.Bytes != 0 {
		t.Errorf("after the export, with the descriptor still there: %+v", s)
	}
	if d := kit.DiffAt(r.read(onCard, 0, size), 2, 0); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
	r.close(file)
	r.close(onCard)
	if err = errors.Join(given.Handle.Close(), r.store.Unlink(r.ctx(), r.root("host"), "file")); err != nil {
		t.Error(err)
	}
}
