package tcp

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// A transfer of more than 4 GiB is cut into fragments that cover it, once and
// in order, on both sides.
func TestCutsMoreThan4GiB(t *testing.T) {
	const size, chunk, at, from = devices.Size(5<<30 + 7), 64 << 20, 1 << 40, 3
	mem, err := unix.Mmap(-1, 0, 6<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	table := region.NewTable(nil)
	b, err := table.Register(mem)
	if err != nil {
		t.Fatal(err)
	}
	var tr Transfer
	w := newWaiter()
	if err = tr.Start(Plan{Kind: wire.KindPut, Local: b, LocalOff: from, Key: 1, RemoteOff: at, Size: size}, w); err != nil {
		t.Fatal(err)
	}
	j, _ := tr.job()
	covered := devices.Size(0)
	for f, _, ok := j.next(chunk); ok; f, _, ok = j.next(chunk) {
		if f.off != devices.Offset(from+covered) || f.at != at+uint64(covered) || f.n == 0 || f.n > chunk {
			t.Fatalf("after %d bytes: %+v", covered, f)
		}
		covered += f.n
		j.ended(nil)
	}
	if covered != size {
		t.Errorf("%d of %d bytes", covered, size)
	}
	if err = w.wait(t); err != nil {
		t.Error(err)
	}
	if err = errors.Join(b.Close(t.Context()), unix.Munmap(mem)); err != nil {
		t.Error(err)
	}
}

// A stale entry in a channel's queue, of an earlier use of a transfer, has no
// effect on the next one.
func TestOldRoundsAreVoid(t *testing.T) {
	table := region.NewTable(nil)
	b, err := table.Register(make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	var tr Transfer
	w := newWaiter()
	if err = tr.Start(Plan{Kind: wire.KindPut, Local: b, Key: 1, Size: 100}, w); err != nil {
		t.Fatal(err)
	}
	old, _ := tr.job()
	if _, _, ok := old.next(100); !ok {
		t.Fatal("nothing to cut")
	}
	old.ended(nil)
	if err = w.wait(t); err != nil {
		t.Fatal(err)
	}
	if err = tr.Start(Plan{Kind: wire.KindGet, Local: b, Key: 2, Size: 50}, w); err != nil {
		t.Fatal(err)
	}
	if f, _, ok := old.next(100); ok {
		t.Errorf("cut %+v", f)
	}
	old.abort(errors.New("of the first round"))
	now, _ := tr.job()
	f, _, ok := now.next(100)
	if !ok || f.n != 50 || f.key != 2 {
		t.Errorf("%+v, %v", f, ok)
	}
	now.abort(errors.New("while one is in flight"))
	select {
	case err = <-w:
		t.Errorf("complete with a fragment in flight: %v", err)
	default:
	}
	now.ended(nil)
	if err = w.wait(t); err == nil {
		t.Error("the abort is forgotten")
	}
	if err = b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
