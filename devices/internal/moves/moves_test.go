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

// memory implements a device on a slice. It refuses a copy whose parts overlap, as devices
// do.
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

// TestPump has a slow device copy pieces from reused slots, and checks that none is touched
// while it is in flight.
func TestPump(t *testing.T) {
	for _, n := range []int{0, 1, 10, 11, 20, 21, 95, 100} {
		src, dst := kit.Bytes(2, 0, n), make([]byte, n)
		var slots [2][]byte
		deepest, busy := 0, 0
		err := Pump{
			Piece: 10,
			Start: func(s Slot, off, n devices.Size) error {
				if slots[s] != nil {
					t.Fatalf("slot %d is used while it is on its way", s)
				}
				slots[s] = bytes.Clone(src[off : off+n])
				busy++
				deepest = max(deepest, busy)
				return nil
			},
			Finish: func(s Slot, off, n devices.Size) error {
				copy(dst[off:off+n], slots[s])
				slots[s] = nil
				busy--
				return nil
			},
		}.Run(t.Context(), devices.Size(n))
		if err != nil || !bytes.Equal(dst, src) || busy != 0 {
			t.Errorf("%d bytes: %v, %d on their way", n, err, busy)
		}
		if want := min(2, (n+9)/10); deepest != want {
			t.Errorf("%d bytes: %d pieces at a time, want %d", n, deepest, want)
		}
	}
}

// TestPumpGivesUp makes each step fail once; whatever was started must be finished.
func TestPumpGivesUp(t *testing.T) {
	boom := errors.New("boom")
	for at := range 10 {
		calls, started, finished := 0, 0, 0
		step := func(done *int) func(Slot, devices.Size, devices.Size) error {
			return func(Slot, devices.Size, devices.Size) error {
				calls++
				if calls-1 == at && done == &started {
					return boom
				}
				*done++
				if calls-1 == at {
					return boom
				}
				return nil
			}
		}
		err := Pump{Piece: 1, Start: step(&started), Finish: step(&finished)}.Run(t.Context(), 5)
		if !errors.Is(err, boom) || started != finished {
			t.Errorf("fault in step %d: %v, %d started, %d finished", at, err, started, finished)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, finished := 0, 0
	err := Pump{
		Piece:  1,
		Start:  func(Slot, devices.Size, devices.Size) error { started++; cancel(); return nil },
		Finish: func(Slot, devices.Size, devices.Size) error { finished++; return nil },
	}.Run(ctx, 100)
	if !errors.Is(err, context.Canceled) || started != 1 || finished != 1 {
		t.Errorf("cancelled: %v, %d started, %d finished", err, started, finished)
	}
}
