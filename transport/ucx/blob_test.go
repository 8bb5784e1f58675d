package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestBlobGolden pins the bytes.
func TestBlobGolden(t *testing.T) {
	got, err := memoryOffer{start: 0x1122334455667788, size: 0x99, key: []byte{1, 2, 3}}.encode(kindMemory)
	if err != nil {
		t.Fatal(err)
	}
	const want = "484d4355" + "01" + "02" + "1300" + "8877665544332211" + "9900000000000000" + "010203" + "2f200544"
	if text := fmt.Sprintf("%x", got); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	h := makeHead(wire.KindPut, wire.StatusRange, 1, 2, 3, 4)
	const head = "2003000000000000" + "0100000000000000" + "0200000000000000" + "0300000000000000" + "0400000000000000"
	if text := fmt.Sprintf("%x", h[:]); text != head {
		t.Errorf("got %s, want %s", text, head)
	}
}

func TestBlobTooLong(t *testing.T) {
	if _, err := encodeBlob(kindAddress, make([]byte, maxBody+1)); err == nil {
		t.Error("taken")
	}
	if p, err := encodeBlob(kindAddress, make([]byte, maxBody)); err != nil || len(p) != wire.MaxOffer {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

// FuzzBlob checks that an accepted blob is identical to the one that would be
// encoded from it.
func FuzzBlob(f *testing.F) {
	for _, kind := range []byte{kindMemory, kindWindow} {
		m := memoryOffer{start: 7, size: 9}
		if kind == kindMemory {
			m.key = []byte{1}
		}
		p, err := m.encode(kind)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, kind := range []byte{kindMemory, kindWindow} {
			m, err := decodeMemory(kind, p)
			if err != nil {
				if !errors.Is(err, ErrOffer) {
					t.Errorf("refused with %v", err)
				}
				continue
			}
			again, err := m.encode(kind)
			if err != nil || !bytes.Equal(again, p) {
				t.Errorf("%x is taken as %+v, which is %x (%v)", p, m, again, err)
			}
		}
	})
}

// TestBadOffers passes a side invalid offers: they are rejected, and the side
// continues to work. Each byte of a valid offer is changed, and each length
// tried.
func TestBadOffers(t *testing.T) {
	for name, o := range map[string]Options{"messages": {}, "one-sided": {Transports: "posix,self", OneSided: true}} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := newPair(t, o)
			far, local := b.alloc(t, 100), a.alloc(t, 100)
			e, err := b.Export(far, wire.Readable|wire.Writable)
			if err != nil {
				t.Fatal(err)
			}
			good := e.Offer().Blob
			bad := map[string][]byte{"nothing": nil, "an address": b.Address(), "random": kit.Bytes(3, 0, 200), "long": make([]byte, wire.MaxOffer+1)}
			for i := range good {
				p := bytes.Clone(good)
				p[i] ^= 0x41
				bad[fmt.Sprintf("byte %d", i)], bad[fmt.Sprintf("%d bytes", i)] = p, good[:i]
			}
			for what, p := range bad {
				if _, err := a.Import(window.Offer{Blob: p}, 100, wire.Readable); !errors.Is(err, ErrOffer) {
					t.Errorf("%s: %v", what, err)
				}
				if err := a.Connect(p); what != "an address" && !errors.Is(err, ErrOffer) {
					t.Errorf("%s as an address: %v", what, err)
				}
			}
			if _, err := a.Import(window.Offer{Blob: good}, 101, wire.Readable); !errors.Is(err, ErrOffer) {
				t.Errorf("another size: %v", err)
			}
			w := open(t, b, a, far)
			transporttest.Fill(t, local, 5)
			must(t, w, window.Op{Kind: wire.KindPut, Local: local, Size: 100})
			transporttest.Check(t, far, 0, 100, 5, 0)
			b.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTargetChecks bypasses the initiator's checks: a peer's request beyond its
// rights is refused, its bytes are unchanged, and the session survives.
func TestTargetChecks(t *testing.T) {
	kit.Check(t)
	a, b := newPair(t, Options{})
	const size = 1 << 20
	far, local := b.alloc(t, size), a.alloc(t, size)
	transporttest.Fill(t, far, 9)
	e, err := b.Export(far, wire.Readable)
	if err != nil {
		t.Fatal(err)
	}
	x, err := a.Import(e.Offer(), size, wire.Readable)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := x.(*remote)
	if !ok {
		t.Fatalf("a window of type %T", x)
	}
	unknown := &remote{p: w.p, window: w.window + 1}
	for name, c := range map[string]struct {
		w    *remote
		op   window.Op
		want error
	}{
		"write, small":  {w, window.Op{Kind: wire.KindPut, Size: 8}, errRefused},
		"write, large":  {w, window.Op{Kind: wire.KindPut, Size: size}, errRefused},
		"behind":        {w, window.Op{Kind: wire.KindGet, Size: 1, RemoteOff: size}, devices.ErrRange},
		"over the end":  {w, window.Op{Kind: wire.KindGet, Size: size, RemoteOff: 1}, devices.ErrRange},
		"wrapped":       {w, window.Op{Kind: wire.KindGet, Size: 16, RemoteOff: ^uint64(7)}, devices.ErrRange},
		"unknown":       {unknown, window.Op{Kind: wire.KindGet, Size: 16}, errRefused},
		"unknown write": {unknown, window.Op{Kind: wire.KindPut, Size: size}, errRefused},
	} {
		c.op.Local = local
		if err := move(c.w, c.op); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		transporttest.Check(t, far, 0, size, 9, 0)
	}
	must(t, w, window.Op{Kind: wire.KindGet, Local: local, Size: size})
	transporttest.Check(t, local, 0, size, 9, 0)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := move(w, window.Op{Kind: wire.KindGet, Local: local, Size: 1}); !errors.Is(err, errRefused) {
		t.Errorf("a closed export: %v", err)
	}
}
