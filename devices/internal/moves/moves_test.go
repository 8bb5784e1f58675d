package moves

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// memory is what a device does, on a slice. It refuses a copy whose parts
// overlap, as devices do.
type memory struct {
	bytes    []byte
	scratch  []byte
	freed    bool
	commands int
}

func (m *memory) copy(to, from, n devices.Size) error {
	m.commands++
	if max(to, from)-min(to, from) < n {
		return fmt.Errorf("copy of %d bytes from %d to %d overlaps", n, from, to)
	}
	copy(m.bytes[to:to+n], m.bytes[from:from+n])
	return nil
}

func (m *memory) overlap(to, from, piece devices.Size) Overlap {
	return Overlap{
		Piece: piece,
		Copy:  func(off, n devices.Size) error { return m.copy(to+off, from+off, n) },
		Scratch: func(n devices.Size) (Scratch, error) {
			m.scratch = make([]byte, n)
			return Scratch{
				Out: func(off, n devices.Size) error {
					copy(m.scratch[:n], m.bytes[from+off:])
					return nil
				},
				Back: func(off, n devices.Size) error {
					copy(m.bytes[to+off:to+off+n], m.scratch[:n])
					return nil
				},
				Free: func() error { m.freed = true; return nil },
			}, nil
		},
	}
}

func TestMoveIsMemmove(t *testing.T) {
	const n = 40 << 20
	for _, distance := range []devices.Size{0, 1, 4095, 1 << 20, overlapPiece - 1, overlapPiece, 5<<20 + 3, n - 1, n, n + 5} {
		for _, up := range []bool{true, false} {
			to, from := devices.Size(0), distance
			if up {
				to, from = distance, 0
			}
			m := &memory{bytes: kit.Bytes(1, 0, int(n+distance))}
			want := bytes.Clone(m.bytes)
			copy(want[to:to+n], want[from:from+n])
			err := m.overlap(to, from, 7<<20).Move(t.Context(), devices.Offset(to), devices.Offset(from), n)
			if err != nil {
				t.Fatalf("distance %d, up %v: %v", distance, up, err)
			}
			if !bytes.Equal(m.bytes, want) {
				t.Errorf("distance %d, up %v: bytes differ", distance, up)
			}
			if near := distance > 0 && distance < overlapPiece; near != (m.scratch != nil) || near != m.freed {
				t.Errorf("distance %d: scratch memory of %d bytes, freed %v", distance, len(m.scratch), m.freed)
			}
			if len(m.scratch) > int(HostPiece) {
				t.Errorf("distance %d: scratch memory of %d bytes", distance, len(m.scratch))
			}
		}
	}
}

func TestMoveFails(t *testing.T) {
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := &memory{bytes: make([]byte, 100)}
	if err := m.overlap(1, 0, 10).Move(ctx, 1, 0, 50); !errors.Is(err, context.Canceled) || m.commands > 0 {
		t.Errorf("error %v after %d commands", err, m.commands)
	}
	if !m.freed {
		t.Error("scratch memory is not given back")
	}
	o := m.overlap(1, 0, 10)
	o.Scratch = func(devices.Size) (Scratch, error) { return Scratch{}, boom }
	if err := o.Move(t.Context(), 1, 0, 50); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

func TestPieces(t *testing.T) {
	type part struct{ off, n devices.Size }
	for _, c := range []struct {
		cut  func(context.Context, devices.Size, devices.Size, Step) error
		n    devices.Size
		want []part
	}{
		{Pieces, 0, nil},
		{Pieces, 7, []part{{0, 3}, {3, 3}, {6, 1}}},
		{Pieces, 3, []part{{0, 3}}},
		{PiecesDown, 7, []part{{4, 3}, {1, 3}, {0, 1}}},
	} {
		var got []part
		err := c.cut(t.Context(), c.n, 3, func(off, n devices.Size) error {
			got = append(got, part{off, n})
			return nil
		})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d bytes: %v, %v", c.n, got, err)
		}
	}
}
