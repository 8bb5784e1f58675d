package tcp

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// lend registers n bytes of a file from off for one transfer.
func (s *side) lend(t testing.TB, f *os.File, off int64, n devices.Size) *region.Buffer {
	t.Helper()
	b, err := s.table.RegisterSpan(transport.FileSpan("host", f, off, n))
	return s.keep(t, b, err)
}

// Pages of files are sent without copying and received into files, from unaligned
// offsets and to unaligned offsets, and the bytes are the same without pipes.
func TestLentFiles(t *testing.T) {
	kit.Check(t)
	const size = 9*testChunk + 321
	for name, spoil := range map[string]func(*Channel){
		"pipes":    func(*Channel) {},
		"no pipes": func(c *Channel) { c.opts.Pipes.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sides(t, "tcp", Options{})
			spoil(a.channel)
			for i, c := range []struct{ here, there int64 }{{0, 0}, {4096, 1}, {4095, 8192}, {77, 4097}} {
				mine, theirs := kit.Memfd(t, 1, int(c.here)+size), kit.Memfd(t, 2, int(c.there)+size+1)
				local, remote := a.lend(t, mine, c.here, size), b.lend(t, theirs, c.there, size)
				d := b.grant(t, remote, both)
				seed := uint64(10 * (i + 1))
				transporttest.Fill(t, local, seed)
				if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: size}); err != nil {
					t.Fatal(err)
				}
				transporttest.Check(t, remote, 0, size, seed, 0)
				transporttest.Fill(t, remote, seed+1)
				if err := a.do(t, Plan{Kind: wire.KindGet, Local: local, Key: d.Key, Size: size}); err != nil {
					t.Fatal(err)
				}
				transporttest.Check(t, local, 0, size, seed+1, 0)
				beside := make([]byte, c.there+size+1)
				if _, err := theirs.ReadAt(beside, 0); err != nil {
					t.Fatal(err)
				}
				if kit.DiffAt(beside[:c.there], 2, 0) >= 0 || kit.DiffAt(beside[c.there+size:], 2, c.there+size) >= 0 {
					t.Error("bytes beside the range have changed")
				}
			}
		})
	}
}

// A truncated file, at either end, is an error, and so is one that can't grow.
// The framing stays intact: the channel continues.
func TestLentFileIsCut(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "tcp", Options{})
	const size = 5 * testChunk
	fd, err := unix.MemfdCreate("full", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	sealed := os.NewFile(uintptr(fd), "full")
	defer func() { _ = sealed.Close() }()
	if err = sealed.Truncate(testChunk + 100); err == nil {
		_, err = unix.FcntlInt(sealed.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW)
	}
	if err != nil {
		t.Fatal(err)
	}
	short := func() *os.File { return kit.Memfd(t, 4, 2*testChunk+5) }
	for name, c := range map[string]struct {
		kind         wire.Kind
		mine, theirs *os.File
		want         error
	}{
		"put from a short file":    {wire.KindPut, short(), kit.Memfd(t, 5, size), io.ErrUnexpectedEOF},
		"get of a short file":      {wire.KindGet, kit.Memfd(t, 5, size), short(), devices.ErrDevice},
		"put to one that is full":  {wire.KindPut, kit.Memfd(t, 5, size), sealed, devices.ErrDevice},
		"get into one that's full": {wire.KindGet, sealed, kit.Memfd(t, 5, size), unix.EPERM},
	} {
		local, remote := a.lend(t, c.mine, 0, size), b.lend(t, c.theirs, 0, size)
		d := b.grant(t, remote, both)
		if err = a.do(t, Plan{Kind: c.kind, Local: local, Key: d.Key, Size: size}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	local, remote := a.host(t, size), b.host(t, size)
	d := b.grant(t, remote, both)
	transporttest.Fill(t, local, 1)
	if err = a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: size}); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, remote, 0, size, 1, 0)
}

// Memory that the device maps is sent from its map and received into it.
func TestMappedMemory(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "tcp", Options{})
	const size = 5*testChunk + 9
	local, remote := a.mapped(t, size), b.mapped(t, size)
	d := b.grant(t, remote, both)
	transporttest.Fill(t, local, 1)
	if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: size}); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, remote, 0, size, 1, 0)
	transporttest.Fill(t, remote, 2)
	if err := a.do(t, Plan{Kind: wire.KindGet, Local: local, LocalOff: 3, Key: d.Key, RemoteOff: 5, Size: size - 7}); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, local, 3, size-7, 2, 5)
	transporttest.Check(t, local, 0, 3, 1, 0)
	for _, s := range []*side{a, b} {
		if total := s.engine.Stats().PinnedTotal; total != 0 {
			t.Errorf("%v went through slots", total)
		}
	}
}

// A frame that breaks off in its middle ends the channel and nothing else: the
// part that has arrived may be in place, the rest of the memory is unchanged, and
// it can be released.
func TestFrameBreaksOff(t *testing.T) {
	kit.Check(t)
	const size = 4 * testChunk
	for name, end := range map[string]func(*side) *region.Buffer{
		"device": func(s *side) *region.Buffer { return s.sim(t, size, sim.Params{}) },
		"mapped": func(s *side) *region.Buffer { return s.mapped(t, size) },
		"file":   func(s *side) *region.Buffer { return s.lend(t, kit.Memfd(t, 1, size), 0, size) },
	} {
		for _, network := range []string{"tcp", "unix"} {
			for _, came := range []int{0, 1, testChunk - 1} {
				ours, theirs := sockets(t, network)
				s := newSide(t, ours, Options{})
				b := end(s)
				transporttest.Fill(t, b, 4)
				d := s.grant(t, b, both)
				frame := raw(wire.DataHeader{Kind: wire.KindPut, Length: testChunk, ID: 1, Key: d.Key, Off: testChunk})
				if _, err := theirs.Write(append(frame, kit.Bytes(5, 0, came)...)); err != nil {
					t.Fatal(err)
				}
				_ = theirs.Close()
				if err := ends(t, s.channel); !errors.Is(err, control.ErrDisconnected) {
					t.Errorf("%s, %d bytes by %s: %v", name, came, network, err)
				}
				transporttest.Check(t, b, 0, testChunk, 4, 0)
				transporttest.Check(t, b, testChunk+came, size-testChunk-came, 4, testChunk+came)
				if err := s.keys.Revoke(t.Context(), d.Key); err != nil {
					t.Errorf("%s, %d bytes by %s: %v", name, came, network, err)
				}
			}
		}
	}
}
