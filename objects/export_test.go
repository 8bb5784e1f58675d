package objects_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

func (r *rig) export(ino objects.Ino, opts objects.ExportOptions) objects.Exported {
	r.t.Helper()
	out, err := r.store.Export(r.ctx(), ino, objects.Caller{}, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := out.Handle.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return out
}

// scattered makes a file of many extents, with holes between them.
func (r *rig) scattered(device, name string) (f *objects.File, want []byte) {
	r.t.Helper()
	f = r.create(device, name)
	other := r.create(device, name+"-between")
	want = make([]byte, 2_500_000)
	for i := range 20 {
		off := i * 120_000
		p := kit.Bytes(uint64(i), 0, 70_000)
		copy(want[off:], p)
		r.write(f, uint64(off), p)
		r.write(other, uint64(off), p)
	}
	r.write(f, uint64(len(want)-1), []byte{1})
	want[len(want)-1] = 1
	r.close(other)
	return f, want
}

func (c *card) memoryOf(t *testing.T, h devices.Handle) []byte {
	t.Helper()
	c.driver.mu.Lock()
	m := c.driver.exported[string(h.Bytes)]
	c.driver.mu.Unlock()
	p := make([]byte, m.Size())
	if err := c.CopyOut(t.Context(), p, m.All()); err != nil {
		t.Fatal(err)
	}
	return p
}

// Exported memory holds the file from its start, followed by zeros: neither bytes of
// others, nor old bytes of the file.
func TestExportGathers(t *testing.T) {
	kit.Check(t)
	c := newCard(newDriver(), "card0")
	r := wrapped(t, c)
	f, want := r.scattered("card0", "f")
	defer r.close(f)
	before := r.used("card0")
	out := r.export(f.Ino(), objects.ExportOptions{})
	if out.Memory.Size != devices.Size(len(want)) || out.Memory.Device != "CARD-card0" || len(out.Memory.Pieces) != 1 ||
		out.Memory.Pieces[0].Handle != hex.EncodeToString(out.Handle.Bytes) || out.Memory.Validate() != nil {
		t.Errorf("exported as %s", out.Memory)
	}
	memory := c.memoryOf(t, out.Handle)
	if i := kit.FirstDiff(memory[:len(want)], want); i >= 0 {
		t.Errorf("byte %d of the memory is not the file's", i)
	}
	if !bytes.Equal(memory[len(want):], make([]byte, len(memory)-len(want))) {
		t.Error("behind the file there is something")
	}
	if i := kit.FirstDiff(r.read(f, 0, len(want)), want); i >= 0 {
		t.Errorf("byte %d of the file has changed", i)
	}
	if used := r.used("card0"); used > before+2*devices.MiB {
		t.Errorf("%v used, before %v: the old memory was not given back", used, before)
	}
	again := r.export(f.Ino(), objects.ExportOptions{Kind: devices.HandleIPC})
	if string(again.Handle.Bytes) != string(out.Handle.Bytes) {
		t.Error("exported again it is other memory")
	}
	r.endExport(f.Ino())
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64(5000))}); err != nil {
		t.Fatal(err)
	}
	out = r.export(f.Ino(), objects.ExportOptions{})
	memory = c.memoryOf(t, out.Handle)
	if kit.FirstDiff(memory[:5000], want[:5000]) >= 0 || !bytes.Equal(memory[5000:], make([]byte, len(memory)-5000)) {
		t.Error("what was cut off before the export is seen in it")
	}
	r.endExport(f.Ino())
}

func (r *rig) endExport(ino objects.Ino) {
	r.t.Helper()
	if err := r.store.EndExport(r.ctx(), ino); err != nil {
		r.t.Fatal(err)
	}
}

// If a handle does not keep its memory, removing the file would let another object use
// it.
func TestExportedByIPCStays(t *testing.T) {
	kit.Check(t)
	r := wrapped(t, newCard(newDriver(), "card0"))
	f, _ := r.scattered("card0", "f")
	ino := f.Ino()
	r.close(f)
	r.export(ino, objects.ExportOptions{})
	root := r.root("card0")
	if err := r.store.Unlink(r.ctx(), root, "f"); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("unlink: %v", err)
	}
	over := metadata.Rename{From: root, Name: "f-between", To: root, NewName: "f"}
	if err := r.store.Rename(r.ctx(), over); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("rename over it: %v", err)
	}
	if _, err := r.store.Link(r.ctx(), ino, root, "g"); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Unlink(r.ctx(), root, "f"); err != nil {
		t.Errorf("unlink of one of two names: %v", err)
	}
	r.endExport(ino)
	if err := r.store.EndExport(r.ctx(), ino); !errors.Is(err, metadata.ErrNoXattr) {
		t.Errorf("ended twice: %v", err)
	}
	if err := r.store.Unlink(r.ctx(), root, "g"); err != nil {
		t.Errorf("unlink after the end: %v", err)
	}
	if err := r.store.Unlink(r.ctx(), root, "f-between"); err != nil {
		t.Error(err)
	}
	if used := r.used("card0"); used != 0 {
		t.Errorf("%v is used by nothing", used)
	}
}

// An export for a process ends with it, one without a process does not, and one for two
// processes lasts as long as either.
func TestExportEndsWithItsHolders(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "f")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(1, 0, 4096))
	cut := func() error {
		_, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64(4095))})
		return err
	}
	first, killFirst := kit.Process(t)
	second, killSecond := kit.Process(t)
	r.export(f.Ino(), objects.ExportOptions{Holder: first})
	r.export(f.Ino(), objects.ExportOptions{Holder: second})
	r.export(f.Ino(), objects.ExportOptions{Holder: second})
	killFirst()
	if err := cut(); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("cut while the second holds it: %v", err)
	}
	killSecond()
	kit.Eventually(t, claimWait, cut)
	third, killThird := kit.Process(t)
	r.export(f.Ino(), objects.ExportOptions{})
	r.export(f.Ino(), objects.ExportOptions{Holder: third})
	killThird()
	if err := cut(); err != nil { // it has this length already
		t.Errorf("cut to the present length: %v", err)
	}
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64(1))}); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("cut of a lasting export: %v", err)
	}
	r.endExport(f.Ino())
	_, err := r.store.Export(r.ctx(), f.Ino(), objects.Caller{}, objects.ExportOptions{Holder: 1 << 22})
	if !errors.Is(err, devices.ErrHandle) {
		t.Errorf("for a process that there is not: %v", err)
	}
}

// A refused export leaves the file unchanged.
func TestExportRefuses(t *testing.T) {
	kit.Check(t)
	plain := newCard(newDriver(), "plain0")
	r := wrapped(t, newCard(newDriver(), "card0"), noHandles{plain})
	f, want := r.scattered("card0", "f")
	defer r.close(f)
	big := r.create("card0", "big")
	r.write(big, 0, kit.Bytes(3, 0, 18<<20)) // more than half of the card
	defer r.close(big)
	empty := r.create("card0", "empty")
	defer r.close(empty)
	without := r.create("plain0", "f")
	defer r.close(without)
	r.write(without, 0, []byte("x"))
	for name, tc := range map[string]struct {
		ino  objects.Ino
		who  objects.Caller
		opts objects.ExportOptions
		want error
	}{
		"empty":         {ino: empty.Ino(), want: objects.ErrInvalid},
		"a directory":   {ino: r.root("card0"), want: objects.ErrInvalid},
		"a reader":      {ino: f.Ino(), who: objects.Caller{UID: 1}, want: objects.ErrForbidden},
		"another kind":  {ino: f.Ino(), opts: objects.ExportOptions{Kind: devices.HandleVMM}, want: devices.ErrUnsupported},
		"no room":       {ino: big.Ino(), want: devices.ErrOutOfMemory},
		"no handles":    {ino: without.Ino(), want: devices.ErrUnsupported},
		"nothing there": {ino: 1 << 40, want: metadata.ErrNotExist},
	} {
		if _, err := r.store.Export(r.ctx(), tc.ino, tc.who, tc.opts); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if i := kit.FirstDiff(r.read(f, 0, len(want)), want); i >= 0 {
		t.Errorf("byte %d of the file has changed", i)
	}
	if i := kit.DiffAt(r.read(big, 0, 18<<20), 3, 0); i >= 0 {
		t.Errorf("byte %d of the large file has changed", i)
	}
	if f.Foreign() || big.Foreign() {
		t.Error("a file that is not exported is told to change by itself")
	}
	r.export(f.Ino(), objects.ExportOptions{})
	if _, err := r.store.Export(r.ctx(), f.Ino(), objects.Caller{}, objects.ExportOptions{Kind: devices.HandleVMM}); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("exported as another kind: %v", err)
	}
	r.endExport(f.Ino())
}

// noHandles is a device without the abilities to export and import.
type noHandles struct{ devices.Device }

// The device loses its memory under an export.
func TestExportedMemoryIsLost(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "f")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(1, 0, 1<<20))
	r.export(f.Ino(), objects.ExportOptions{})
	devfaulty.Simulated(r.devs[0]).Crash()
	if _, err := f.ReadAt(r.ctx(), make([]byte, 1), 0); !errors.Is(err, objects.ErrLost) {
		t.Errorf("read: %v", err)
	}
	if _, err := r.store.Export(r.ctx(), f.Ino(), objects.Caller{}, objects.ExportOptions{}); !errors.Is(err, objects.ErrLost) {
		t.Errorf("the handle of what is gone: %v", err)
	}
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: new(uint64(0))}); err != nil {
		t.Errorf("cut to nothing: %v", err)
	}
	r.write(f, 0, kit.Bytes(2, 0, 4096))
	if i := kit.DiffAt(r.read(f, 0, 4096), 2, 0); i >= 0 {
		t.Errorf("byte %d of the next life is wrong", i)
	}
}

// An exported file, changed randomly through the store and through the memory, equals a
// slice of bytes changed in the same way.
func TestExportModel(t *testing.T) {
	kit.Check(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &exportModel{rig: newRig(t, sim.Params{Size: 64 * devices.MiB}), rng: rand.New(rand.NewPCG(seed, 1))}
	for round := range 5 {
		m.begin(round)
		for range 120 {
			m.step()
		}
		m.end()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// exportModel is an exported file and its expected content.
type exportModel struct {
	*rig
	rng    *rand.Rand
	f, src *objects.File
	view   []byte
	want   []byte
}

func (m *exportModel) begin(round int) {
	m.t.Helper()
	names := []string{"a", "b", "c", "d", "e", "f"}
	m.f, m.src = m.create("sim0", names[round]), m.create("sim0", names[round]+"-src")
	m.want = kit.Bytes(m.rng.Uint64(), 0, 60_000+m.rng.IntN(300_000))
	m.write(m.f, 0, m.want)
	m.write(m.src, 0, kit.Bytes(9, 0, 10_000))
	m.write(m.src, 90_000, kit.Bytes(9, 90_000, 10_000))
	out := m.export(m.f.Ino(), objects.ExportOptions{})
	view, err := unix.Mmap(int(out.Handle.File.Fd()), 0, int(out.Memory.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.t.Fatal(err)
	}
	m.view = view
}

func (m *exportModel) end() {
	m.t.Helper()
	m.endExport(m.f.Ino())
	m.check()
	if err := unix.Munmap(m.view); err != nil {
		m.t.Error(err)
	}
	m.close(m.f)
	m.close(m.src)
}

// span is a random range below a limit.
func (m *exportModel) span(limit, longest int) (off, n int) {
	off = m.rng.IntN(limit)
	return off, 1 + m.rng.IntN(min(longest, limit-off))
}

// grown makes the model at least as long as an operation makes the file.
func (m *exportModel) grown(end int) {
	if end > len(m.want) {
		m.want = append(m.want, make([]byte, end-len(m.want))...)
	}
}

func (m *exportModel) step() {
	m.t.Helper()
	const longest = 800_000
	switch m.rng.IntN(7) {
	case 0, 1: // a store through the memory
		off, n := m.span(len(m.view), 50_000)
		p := kit.Bytes(m.rng.Uint64(), 0, n)
		copy(m.view[off:], p)
		copy(m.want[off:], p)
	case 2:
		off, n := m.span(longest, 80_000)
		p := kit.Bytes(m.rng.Uint64(), 0, n)
		m.write(m.f, uint64(off), p)
		m.grown(off + n)
		copy(m.want[off:], p)
	case 3:
		off, n := m.span(longest, 80_000)
		if err := m.f.Allocate(m.ctx(), objects.AllocateZero, uint64(off), uint64(n)); err != nil {
			m.t.Fatal(err)
		}
		m.grown(off + n)
		clear(m.want[off : off+n])
	case 4:
		m.punch(longest)
	case 5:
		size := len(m.view) + m.rng.IntN(longest-len(m.view))
		if _, err := m.store.SetAttr(m.ctx(), m.f.Ino(), objects.Change{Size: new(uint64(size))}); err != nil {
			m.t.Fatal(err)
		}
		m.want = m.want[:min(size, len(m.want))]
		m.grown(size)
	case 6: // a copy that brings a hole
		off := m.rng.IntN(len(m.view))
		n, err := m.store.CopyRange(m.ctx(), objects.CopyRange{Dst: m.f, DstOff: uint64(off), Src: m.src, N: 100_000})
		if err != nil || n != 100_000 {
			m.t.Fatalf("copied %d: %v", n, err)
		}
		m.grown(off + 100_000)
		copy(m.want[off:], kit.Bytes(9, 0, 10_000))
		clear(m.want[off+10_000 : off+90_000])
		copy(m.want[off+90_000:], kit.Bytes(9, 90_000, 10_000))
	}
	m.check()
}

// punch makes a hole, which is refused in the exported range.
func (m *exportModel) punch(longest int) {
	m.t.Helper()
	off, n := m.span(longest, 80_000)
	err := m.f.Allocate(m.ctx(), objects.AllocatePunch, uint64(off), uint64(n))
	if off < len(m.view) {
		if !errors.Is(err, objects.ErrBusy) {
			m.t.Fatalf("hole at %d: %v", off, err)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	if off < len(m.want) {
		clear(m.want[off:min(off+n, len(m.want))])
	}
}

func (m *exportModel) check() {
	m.t.Helper()
	if i := kit.FirstDiff(m.read(m.f, 0, len(m.want)+1), m.want); i >= 0 {
		m.t.Fatalf("byte %d of the file of %d is wrong; %d are exported", i, len(m.want), len(m.view))
	}
	if i := kit.FirstDiff(m.view, m.want[:len(m.view)]); i >= 0 {
		m.t.Fatalf("byte %d of the memory is not the file's", i)
	}
}

// TestExportsHaveFlagsOfTheirOwn: a process that has received a descriptor may set its
// flags, without an effect on the file's own writes.
func TestExportsHaveFlagsOfTheirOwn(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	f := r.create("host", "f")
	want := kit.Bytes(1, 0, 100_000)
	r.write(f, 0, want)
	out := r.export(f.Ino(), objects.ExportOptions{})
	if _, err := unix.FcntlInt(out.Handle.File.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	again := r.export(f.Ino(), objects.ExportOptions{})
	flags, err := unix.FcntlInt(again.Handle.File.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_APPEND != 0 {
		t.Errorf("another one is given a descriptor of flags %#o: %v", flags, err)
	}
	change := kit.Bytes(2, 0, 50_000)
	r.write(f, 1000, change)
	copy(want[1000:], change)
	if f.Size() != uint64(len(want)) {
		t.Errorf("%d bytes", f.Size())
	}
	if i := kit.FirstDiff(r.read(f, 0, len(want)), want); i >= 0 {
		t.Errorf("byte %d differs", i)
	}
	r.endExport(f.Ino())
	r.remove(f, "host")
}
