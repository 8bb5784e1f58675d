package tcp

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// never is the duration of a copy that does not end before its test: the end of
// the channel ends it.
const never = 1000 * time.Hour

// A device is read while the network is blocked: for a put from device memory to
// a peer that reads nothing, every slot is filled.
func TestDeviceIsReadAhead(t *testing.T) {
	kit.Check(t)
	ca, cb := sockets(t, "unix")
	defer func() { _ = cb.Close() }()
	const chunk, size = 1 << 20, 8 << 20
	a := newSideOf(t, ca, Options{}, chunk)
	local := a.sim(t, size, sim.Params{})
	var tr Transfer
	w := newWaiter()
	if err := tr.Start(Plan{Kind: wire.KindPut, Local: local, Key: 1, Size: size}, w); err != nil {
		t.Fatal(err)
	}
	a.channel.Post(&tr)
	kit.Eventually(t, patience, func() bool { return copies(a, transport.PathD2H) == slotsPerWay })
	a.channel.Close()
	if err := w.wait(t); err == nil {
		t.Error("a put to nobody has ended well")
	}
}

// copies returns the number of copies that a side's engine has made on a path.
func copies(s *side, p transport.Path) uint64 {
	n := uint64(0)
	for _, row := range s.engine.Stats().Paths {
		if row.Path == p {
			n += row.Operations
		}
	}
	return n
}

// counted counts the bytes that are read from a connection.
type counted struct {
	net.Conn

	read atomic.Uint64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(uint64(n))
	return n, err
}

// The network continues while a device is written: for a put into device memory
// that takes forever, and for a get, every slot is filled.
func TestNetworkReadsAhead(t *testing.T) {
	kit.Check(t)
	const chunk, size = 1 << 20, 8 << 20
	for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
		ca, cb := sockets(t, "unix")
		from, to := &counted{Conn: ca}, &counted{Conn: cb}
		a, b := newSideOf(t, from, Options{}, chunk), newSideOf(t, to, Options{}, chunk)
		slow := sim.Params{Latency: never}
		p := Plan{Kind: kind, Size: size}
		read := &to.read
		if kind == wire.KindPut {
			p.Local, p.Key = a.host(t, size), b.grant(t, b.sim(t, size, slow), both).Key
		} else {
			p.Local, p.Key = a.sim(t, size, slow), b.grant(t, b.host(t, size), both).Key
			read = &from.read
		}
		var tr Transfer
		w := newWaiter()
		if err := tr.Start(p, w); err != nil {
			t.Fatal(err)
		}
		a.channel.Post(&tr)
		kit.Eventually(t, patience, func() bool { return read.Load() >= slotsPerWay*(chunk+wire.DataHeaderSize) })
		if copies(a, transport.PathH2D)+copies(b, transport.PathH2D) != 0 {
			t.Errorf("%s: the device has taken something", kind)
		}
		a.channel.Close()
		b.channel.Close()
		if err := w.wait(t); err == nil {
			t.Errorf("%s into a device that never ends has ended well", kind)
		}
	}
}

// Reading and sending of a file overlap as for device memory. A file that its
// owner has truncated fails the requests for the missing part; the channel
// continues.
func TestFilesThatAreCut(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "unix", Options{})
	const size = 4*testChunk + 100
	mine, theirs := kit.Memfd(t, 1, size), kit.Memfd(t, 2, size)
	fa, err := a.table.RegisterFile("host", mine, 0, size)
	local := a.keep(t, fa, err)
	fb, err := b.table.RegisterFile("host", theirs, 0, size)
	remote := b.keep(t, fb, err)
	d := b.grant(t, remote, both)
	if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: size}); err != nil {
		t.Fatal(err)
	}
	checkFile(t, theirs, 1, size)
	sound := a.host(t, size)
	for name, f := range map[string]*os.File{"ours": mine, "theirs": theirs} {
		if err := f.Truncate(testChunk); err != nil {
			t.Fatal(err)
		}
		p := Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: size}
		if name == "theirs" {
			p.Kind, p.Local = wire.KindGet, sound
		}
		if err := a.do(t, p); err == nil {
			t.Errorf("%s: what is gone was moved", name)
		}
		p.Size = testChunk
		if err := a.do(t, p); err != nil {
			t.Errorf("%s: what is left: %v", name, err)
		}
	}
}

func checkFile(t *testing.T, f *os.File, seed uint64, n devices.Size) {
	t.Helper()
	p := make([]byte, n)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(p, seed, 0); at >= 0 {
		t.Errorf("byte %d of the file is not what was put", at)
	}
}
