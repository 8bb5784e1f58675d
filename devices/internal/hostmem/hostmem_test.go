package hostmem

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

func newBlock(t *testing.T, n int) *Block {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	return NewBlock(m)
}

func isMapped(b *Block) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes != nil
}

func TestBlockOutlivesItsEnd(t *testing.T) {
	b := newBlock(t, 4096)
	first, err := b.Enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Enter(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.End(devices.ErrLost), b.End(devices.ErrClosed)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Enter(); !errors.Is(err, devices.ErrLost) {
		t.Errorf("enter after the end: %v", err)
	}
	b.Leave()
	first[4095] = 1 // still mapped
	if !isMapped(b) {
		t.Error("unmapped below its last user")
	}
	b.Leave()
	if isMapped(b) {
		t.Error("mapped without users after its end")
	}
}

// TestPieces checks the order and the boundaries of the pieces, and that the context and
// the pace can end a copy between two of them.
func TestPieces(t *testing.T) {
	const n = 3*pieceSize + 5
	var got [][2]int
	note := func(off, end int) { got = append(got, [2]int{off, end}) }
	for _, backward := range []bool{false, true} {
		got = nil
		if err := pieces(t.Context(), n, backward, nil, note); err != nil {
			t.Fatal(err)
		}
		covered := 0
		for i, p := range got {
			covered += p[1] - p[0]
			if i > 0 && !backward && p[0] != got[i-1][1] || i > 0 && backward && p[1] != got[i-1][0] {
				t.Errorf("backward %v: %v", backward, got)
			}
		}
		if covered != n || len(got) != 4 {
			t.Errorf("backward %v: %v", backward, got)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	got = nil
	err := pieces(ctx, n, false, func(context.Context, int) error {
		if len(got) == 2 {
			cancel()
		}
		return nil
	}, note)
	if !errors.Is(err, context.Canceled) || len(got) != 2 {
		t.Errorf("%v after %v", err, got)
	}
	stop := errors.New("stop")
	got = nil
	err = pieces(t.Context(), n, false, func(context.Context, int) error { return stop }, note)
	if !errors.Is(err, stop) || len(got) != 1 {
		t.Errorf("%v after %v", err, got)
	}
}
