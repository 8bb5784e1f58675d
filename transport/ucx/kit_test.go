package ucx

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// result is a Completer.
type result chan error

func (r result) Complete(err error) { r <- err }

// side holds the state of one process of a session.
type side struct {
	ctx   *Context
	table *region.Table
	*Provider
}

// newSide opens the library with the transports. Everything ends with the
// test.
func newSide(t testing.TB, lib *Library, o Options) *side {
	t.Helper()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Engine = engine
	ctx, err := lib.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ctx.NewProvider(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
		if live := ctx.Stats().Live; live != 0 {
			t.Errorf("%d registrations are left", live)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return &side{ctx: ctx, table: region.NewTable(engine), Provider: p}
}

// newPair is two sides in this process, connected both ways.
func newPair(t testing.TB, o Options) (a, b *side) {
	t.Helper()
	kit.Require(t, "ucx")
	lib := &Library{}
	a, b = newSide(t, lib, o), newSide(t, lib, o)
	if err := a.Connect(b.Address()); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect(a.Address()); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// alloc returns a registered buffer of n bytes. It ends with the test, and after
// the provider: data from a peer may still be in transit to it.
func (s *side) alloc(t testing.TB, n int) *region.Buffer {
	t.Helper()
	b, err := s.table.Alloc(devices.Size(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := b.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return b
}

// open opens a window to a buffer for a peer.
func open(t testing.TB, from, to *side, b *region.Buffer) window.Window {
	t.Helper()
	e, err := from.Export(b, wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	w, err := to.Import(e.Offer(), b.Size(), wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		from.Close()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// move does one operation and waits for it.
func move(w window.Window, o window.Op) error {
	done := make(result, 1)
	w.Start(&o, done)
	return <-done
}

// must fails the test if the operation fails.
func must(t testing.TB, w window.Window, o window.Op) {
	t.Helper()
	if err := move(w, o); err != nil {
		t.Fatal(fmt.Errorf("%v of %d bytes: %w", o.Kind, o.Size, err))
	}
}
