package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// pinnedChunk makes the conformance list long enough for devices to register.
const pinnedChunk = 512 * devices.KiB

// newPinned makes a simulated card, which detects use of memory that is
// registered only in part, and memory that is released while in use.
func newPinned(tb testing.TB, p sim.Params) *sim.PinnedDevice {
	tb.Helper()
	p.Pinned = true
	if p.Size == 0 {
		p.Size = devices.GiB
	}
	d, ok := sim.New(0, p).(*sim.PinnedDevice)
	if !ok {
		tb.Fatal("not a device that registers")
	}
	tb.Cleanup(func() {
		if n, fault := d.Pins(); fault != nil || n.Ranges != 0 || n.Bytes != 0 {
			tb.Errorf("registered memory left behind: %+v, fault %v", n, fault)
		}
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

func TestConformanceRegistered(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string]func(file, card transporttest.End) transporttest.Pair{
		"file-card": func(file, card transporttest.End) transporttest.Pair {
			return transporttest.Pair{Src: file, Dst: card, Path: transport.PathH2D}
		},
		"card-file": func(file, card transporttest.End) transporttest.Pair {
			return transporttest.Pair{Src: card, Dst: file, Path: transport.PathD2H}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				card := newPinned(t, sim.Params{})
				p := pair(transporttest.Registrable("host", t.TempDir()), transporttest.Device(card))
				p.Engine = newEngine(t, transport.Options{ChunkSize: pinnedChunk, RegisterFrom: 1})
				p.Chunk, p.Device = pinnedChunk, "sim0"
				return p
			})
		})
	}
}

// card is a card, an engine, and memory of the card with known bytes.
type card struct {
	*testing.T
	dev    *sim.PinnedDevice
	engine *transport.Engine
	mem    devices.Span
	want   []byte
}

func newCard(t *testing.T, n devices.Size, p sim.Params, o transport.Options) *card {
	t.Helper()
	c := &card{T: t, dev: newPinned(t, p)}
	c.engine = newEngine(t, o)
	c.mem = memoryOn(t, c.dev, n)
	c.want = kit.Bytes(1, 0, int(n))
	if err := c.dev.CopyIn(t.Context(), c.mem, c.want); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *card) file(content []byte) *os.File {
	c.Helper()
	f := memFile(c)
	if _, err := f.WriteAt(content, 0); err != nil {
		c.Fatal(err)
	}
	return f
}

func span(f *os.File, off, n devices.Size) transport.Span {
	return transport.FileSpan("host", f, int64(off), n).Registrable()
}

// out copies the card's first n bytes into the file, in copies it back.
func (c *card) out(f *os.File, off, n devices.Size) {
	c.Helper()
	from, err := c.mem.Sub(0, n)
	if err == nil {
		_, err = c.engine.Copy(c.Context(), span(f, off, n), transport.DeviceSpan(from))
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *card) in(f *os.File, off, n devices.Size) {
	c.Helper()
	to, err := c.mem.Sub(0, n)
	if err == nil {
		_, err = c.engine.Copy(c.Context(), transport.DeviceSpan(to), span(f, off, n))
	}
	if err != nil {
		c.Fatal(err)
	}
}

// holds compares the card's first bytes.
func (c *card) holds(want []byte) {
	c.Helper()
	got := make([]byte, len(want))
	part, err := c.mem.Sub(0, devices.Size(len(want)))
	if err == nil {
		err = c.dev.CopyOut(c.Context(), got, part)
	}
	if err != nil || !bytes.Equal(got, want) {
		c.Errorf("the card holds other bytes, %v", err)
	}
}

func (c *card) stats() transport.RegisteredStats { return c.engine.Stats().Registered }

const mib = devices.MiB

// TestRegisteredIsKept copies one file repeatedly, by several handles.
func TestRegisteredIsKept(t *testing.T) {
	c := newCard(t, 20*mib, sim.Params{}, transport.Options{})
	content := kit.Bytes(2, 0, int(20*mib))
	f := c.file(content)
	c.in(f, 0, 20*mib)
	c.holds(content)
	first := c.stats()
	if first.Registered != 3 || first.Bytes != 20*mib || first.DirectBytes != uint64(20*mib) {
		t.Errorf("after one copy: %+v", first)
	}
	again, err := os.OpenFile("/proc/self/fd/"+fmt.Sprint(f.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	c.in(again, mib+1, 15*mib)
	c.holds(content[mib+1 : 16*mib+1])
	if s := c.stats(); s.Registered != 3 || s.Hits != 2 || s.Failures != 0 || s.Stale != 0 {
		t.Errorf("after a second copy: %+v", s)
	}
	// The byte after the last boundary went through a slot, which is pinned. Only
	// what the test itself copied was not.
	if n, _ := c.dev.Pins(); n.Pageable != 20*mib+20*mib+15*mib || n.Pinned != 20*mib+15*mib {
		t.Errorf("copies from pageable memory: %+v", n)
	}
}

// TestRegisteredByTwo starts two copies of one file at once.
func TestRegisteredByTwo(t *testing.T) {
	c := newCard(t, 16*mib, sim.Params{}, transport.Options{})
	f := c.file(c.want)
	var both sync.WaitGroup
	for i := range devices.Size(2) {
		both.Go(func() {
			to, err := c.mem.Sub(0, 8*mib)
			if i == 1 {
				to, err = c.mem.Sub(devices.Offset(8*mib), 8*mib)
			}
			if err == nil {
				_, err = c.engine.Copy(t.Context(), transport.DeviceSpan(to), span(f, 0, 8*mib))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if s := c.stats(); s.Registered != 1 || s.Hits != 1 {
		t.Errorf("two copies of one region: %+v", s)
	}
	c.holds(append(bytes.Clone(c.want[:8*mib]), c.want[:8*mib]...))
}

// TestRegisteredFile checks the effects of a copy on the file around the bytes.
func TestRegisteredFile(t *testing.T) {
	c := newCard(t, 9*mib, sim.Params{}, transport.Options{})
	f := c.file(kit.Bytes(3, 0, 5000))
	old := unix.Timespec{Sec: 1e9}
	setTimes := func() {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+fmt.Sprint(f.Fd()), []unix.Timespec{old, old}, 0); err != nil {
			t.Fatal(err)
		}
	}
	setTimes()
	c.out(f, 3000, 9*mib-77)
	c.out(f, 3000, 9*mib) // the page with the end is registered now
	info, err := f.Stat()
	if err != nil || info.Size() != int64(9*mib+3000) {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if info.ModTime().Unix() == old.Sec {
		t.Error("the file's time is not that of the copy")
	}
	got := make([]byte, 9*mib+3000)
	if _, err = f.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if want := append(kit.Bytes(3, 0, 3000), c.want...); !bytes.Equal(got, want) {
		t.Error("the file holds other bytes")
	}
	setTimes()
	if err = c.dev.Fill(t.Context(), c.mem, 0); err != nil {
		t.Fatal(err)
	}
	fresh := newEngine(t, transport.Options{})
	if _, err = fresh.Copy(t.Context(), transport.DeviceSpan(c.mem), span(f, 3000, 9*mib)); err != nil {
		t.Fatal(err)
	}
	c.holds(c.want)
	if info, err = f.Stat(); err != nil || info.ModTime().Unix() != old.Sec {
		t.Errorf("reading has changed the file's time to %v, %v", info.ModTime(), err)
	}
	if s := fresh.Stats().Registered; s.Registered != 2 || s.DirectBytes != uint64(9*mib) {
		t.Errorf("%+v", s)
	}
}

// TestRegisteredHole checks that a hole stays a hole.
func TestRegisteredHole(t *testing.T) {
	c := newCard(t, 8*mib, sim.Params{}, transport.Options{})
	f := c.file(c.want[:3*mib])
	if err := f.Truncate(int64(8 * mib)); err != nil {
		t.Fatal(err)
	}
	c.in(f, 0, 8*mib)
	c.holds(append(bytes.Clone(c.want[:3*mib]), make([]byte, 5*mib)...))
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 != int64(3*mib) {
		t.Errorf("the file has %d bytes of memory, %v", st.Blocks*512, err)
	}
	if s := c.stats(); s.Registered != 0 || s.Failures != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRegisteredRefused goes through slots, and reports that.
func TestRegisteredRefused(t *testing.T) {
	inner := newPinned(t, sim.Params{})
	refuse := faulty.EveryNth(1, faulty.Pin, devices.ErrDevice)
	dev := faulty.Wrap(inner, refuse)
	e := newEngine(t, transport.Options{})
	mem, content := memoryOn(t, dev, 20*mib), kit.Bytes(4, 0, int(20*mib))
	f := memFile(t)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if path, err := e.Copy(t.Context(), transport.DeviceSpan(mem), span(f, 0, mem.Len)); err != nil || path != transport.PathH2D {
			t.Fatalf("path %q, %v", path, err)
		}
	}
	s := e.Stats().Registered
	if e.Stats().PinFailures == 0 {
		t.Error("slots that are not pinned are not counted")
	}
	if s.Failures == 0 || s.Failures > 3 || s.DirectBytes != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	got := make([]byte, len(content))
	if err := dev.CopyOut(t.Context(), got, mem); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other bytes, %v", err)
	}
}

// TestRegisteredLimit never registers more than the limit.
func TestRegisteredLimit(t *testing.T) {
	c := newCard(t, 24*mib, sim.Params{}, transport.Options{MaxRegistered: 20 * mib})
	one, two := c.file(c.want), c.file(c.want)
	for range 2 {
		c.in(one, 0, 24*mib)
	}
	if s := c.stats(); s.Bytes != 16*mib || s.Registered != 2 || s.Hits != 2 || s.Evicted != 0 {
		t.Errorf("a file that is longer than the limit: %+v", s)
	}
	c.in(two, 0, 12*mib)
	if s := c.stats(); s.Bytes > 20*mib || s.Evicted == 0 {
		t.Errorf("a second file: %+v", s)
	}
	if n, fault := c.dev.Pins(); fault != nil || n.Bytes > 20*mib+c.engine.Stats().PinnedTotal {
		t.Errorf("%+v, %v", n, fault)
	}
	c.holds(c.want)
}

// TestRegisteredLost drops everything that an earlier epoch of the device had
// registered.
func TestRegisteredLost(t *testing.T) {
	c := newCard(t, 16*mib, sim.Params{}, transport.Options{})
	f := c.file(c.want)
	c.in(f, 0, 16*mib)
	faulty.Simulated(c.dev).Crash()
	c.mem = memoryOn(t, c.dev, 16*mib)
	c.in(f, 0, 16*mib)
	c.holds(c.want)
	if s := c.stats(); s.Stale == 0 || s.Registered != 4 || s.Bytes != 16*mib {
		t.Errorf("%+v", s)
	}
}

// TestRegisteredBehindTheBack takes pages from the file without notice, as a
// program can that has mapped it through FUSE passthrough.
func TestRegisteredBehindTheBack(t *testing.T) {
	c := newCard(t, 16*mib, sim.Params{}, transport.Options{})
	f := c.file(c.want)
	c.in(f, 0, 16*mib)
	theirs, err := unix.Mmap(int(f.Fd()), 0, int(16*mib), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(theirs) }()
	hole := theirs[mib : mib+4096]
	if err := unix.Madvise(hole, unix.MADV_REMOVE); err != nil {
		t.Fatal(err)
	}
	copy(hole, kit.Bytes(9, 0, len(hole)))
	before := c.stats()
	c.in(f, 0, 16*mib)
	c.holds(theirs)
	after := c.stats()
	if after.Stale != before.Stale+1 || after.Registered != before.Registered+1 {
		t.Errorf("%+v, before %+v: the page that was taken went unnoticed", after, before)
	}
}

// TestWithdraw truncates the source of a slow copy.
func TestWithdraw(t *testing.T) {
	c := newCard(t, 16*mib, sim.Params{Bandwidth: 40e6}, transport.Options{})
	f := c.file(c.want)
	done := make(chan error, 1)
	go func() {
		_, err := c.engine.Copy(t.Context(), transport.DeviceSpan(c.mem), span(f, 0, 16*mib))
		done <- err
	}()
	kit.Eventually(t, time.Minute, func() bool { return c.stats().Registered > 0 })
	release, err := c.engine.Withdraw(t.Context(), f, 0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := c.dev.Pins(); n.Bytes > c.engine.Stats().PinnedTotal || c.stats().Bytes != 0 {
		t.Errorf("pages are registered still: %+v, %+v", n, c.stats())
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	// A reader of the pages now gets a SIGBUS, which ends the test.
	if err := <-done; err != nil && !errors.Is(err, devices.ErrRange) {
		t.Error(err)
	}
	if s := c.stats(); s.Bytes != 0 {
		t.Errorf("registered while somebody holds the file: %+v", s)
	}
	release()
	if _, err := f.WriteAt(c.want, 0); err != nil {
		t.Fatal(err)
	}
	c.in(f, 0, 16*mib)
	c.holds(c.want)
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	c.engine.Forget(transport.FileIDOf(st))
	if s := c.stats(); s.Bytes != 0 {
		t.Errorf("registered after the file was forgotten: %+v", s)
	}
}

// TestWithdrawImpatient gives up waiting for a device that does not finish.
func TestWithdrawImpatient(t *testing.T) {
	inner := newPinned(t, sim.Params{})
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dev := faulty.Wrap(inner, func(op faulty.Op) error {
		if op.Kind == faulty.CopyIn && op.Bytes > mib {
			once.Do(func() { close(blocked) })
			<-release
		}
		return nil
	})
	e := newEngine(t, transport.Options{})
	mem, content := memoryOn(t, dev, 8*mib), kit.Bytes(4, 0, int(8*mib))
	f := memFile(t)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := e.Copy(t.Context(), transport.DeviceSpan(mem), span(f, 0, mem.Len))
		done <- err
	}()
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Withdraw(ctx, f, 0, mem.Len); !errors.Is(err, context.Canceled) {
		t.Errorf("withdraw from a device that does not end: %v", err)
	}
	if _, fault := inner.Pins(); fault != nil {
		t.Error(fault)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	got := make([]byte, len(content))
	if err := dev.CopyOut(t.Context(), got, mem); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other bytes, %v", err)
	}
}
