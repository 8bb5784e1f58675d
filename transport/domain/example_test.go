package domain_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// elements is the length of the data of a rank of the ring.
const elements = 10

// member is one rank of the ring and its data, uint32 each.
type member struct {
	c *domain.Comm
	// data is the rank's, in what it gets.
	data, in domain.View
	memory   []byte
	received []byte
}

func (m *member) element(i int) uint32 { return binary.LittleEndian.Uint32(m.memory[4*i:]) }

// arange sets the elements to 0, 1, 2 and so on.
func (m *member) arange() {
	for i := range elements {
		binary.LittleEndian.PutUint32(m.memory[4*i:], uint32(i))
	}
}

// add adds what was received to the data.
func (m *member) add() {
	for i := range elements {
		sum := m.element(i) + binary.LittleEndian.Uint32(m.received[4*i:])
		binary.LittleEndian.PutUint32(m.memory[4*i:], sum)
	}
}

// asWritten is one round of the seed's ring: every rank sends its data to the
// right, receives from the left, and adds.
func asWritten(ctx context.Context, m *member) error {
	n := domain.Rank(m.c.Size())
	if err := m.c.Send(ctx, m.data, (m.c.Rank()+1)%n, 1); err != nil {
		return err
	}
	if err := m.c.Recv(ctx, m.in, (m.c.Rank()+n-1)%n, 1); err != nil {
		return err
	}
	m.add()
	return nil
}

// corrected is one round of a ring that ends with equal data: every rank passes
// on what it has received, but for rank 0, which has the data. It sends and
// receives at the same time, so it does not depend on the size.
func corrected(ctx context.Context, m *member) error {
	n := domain.Rank(m.c.Size())
	right, left := (m.c.Rank()+1)%n, (m.c.Rank()+n-1)%n
	if err := m.c.SendRecv(ctx, m.data, right, m.in, left, 2); err != nil {
		return err
	}
	if m.c.Rank() != 0 {
		copy(m.memory, m.received)
	}
	return nil
}

// rounds has every member do a round, some times, and calls after behind each.
func rounds(ring []*member, n int, round func(*member) error, after func()) error {
	for range n {
		errs := make([]error, len(ring))
		var all sync.WaitGroup
		for i, m := range ring {
			all.Go(func() { errs[i] = round(m) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		after()
	}
	return nil
}

// firsts is element 1 of every rank.
func firsts(ring []*member) []uint32 {
	var out []uint32
	for _, m := range ring {
		out = append(out, m.element(1))
	}
	return out
}

// newRing makes n ranks in this process, and the function that ends them.
func newRing(dir string, n int, o domain.Options) (ring []*member, end func() error, err error) {
	var closers []func() error
	end = func() error {
		var errs []error
		for _, fn := range slices.Backward(closers) {
			errs = append(errs, fn())
		}
		return errors.Join(errs...)
	}
	o.AddressBook = map[wire.Rank]control.Address{}
	var hosts []*domain.Domains
	var ranks []wire.Rank
	for i := range wire.Rank(n) {
		e, err := transport.New(transport.Options{})
		if err != nil {
			return nil, end, err
		}
		c, err := comm.New(comm.Options{Rank: i, Secret: []byte("all ranks of the job know this one"), Engine: e})
		if err != nil {
			return nil, end, errors.Join(err, e.Close())
		}
		closers = append(closers, e.Close, c.Close)
		d, err := domain.New(c, o)
		if err != nil {
			return nil, end, err
		}
		closers = append(closers, d.Close)
		at := control.Address{Network: control.Unix, Addr: filepath.Join(dir, fmt.Sprint(n, "-", uint32(i)))}
		if o.AddressBook[i], err = c.Listen(context.Background(), at); err != nil {
			return nil, end, err
		}
		m := &member{memory: make([]byte, 4*elements), received: make([]byte, 4*elements)}
		for v, memory := range map[*domain.View][]byte{&m.data: m.memory, &m.in: m.received} {
			b, err := c.Table().Register(memory)
			if err != nil {
				return nil, end, err
			}
			closers = append(closers, func() error { return b.Close(context.Background()) })
			if *v, err = domain.All(b, elem.Uint32); err != nil {
				return nil, end, err
			}
		}
		ring, hosts, ranks = append(ring, m), append(hosts, d), append(ranks, i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, d := range hosts {
		all.Go(func() { ring[i].c, errs[i] = d.NewComm(ctx, "ring", ranks) })
	}
	all.Wait()
	return ring, end, errors.Join(errs...)
}

// The ring of the seed, as it is written there: with 40 bytes the blocking
// sends need no receive, so it ends, and its ranks don't have equal data.
func Example_ring() {
	err := inRing(4, domain.Options{}, func(ring []*member) error {
		ring[0].arange()
		return rounds(ring, 4, func(m *member) error { return asWritten(context.Background(), m) }, func() {
			_, _ = fmt.Fprintln(os.Stdout, "element 1:", firsts(ring))
		})
	})
	_, _ = fmt.Fprintln(os.Stdout, "error:", err)
	// Output:
	// element 1: [1 1 0 0]
	// element 1: [1 2 1 0]
	// element 1: [1 3 3 1]
	// element 1: [2 4 6 4]
	// error: <nil>
}

// The ring that ends with equal data: who has received passes that on.
func Example_ringCorrected() {
	err := inRing(4, domain.Options{}, func(ring []*member) error {
		ring[0].arange()
		return rounds(ring, 3, func(m *member) error { return corrected(context.Background(), m) }, func() {
			_, _ = fmt.Fprintln(os.Stdout, "element 1:", firsts(ring))
		})
	})
	_, _ = fmt.Fprintln(os.Stdout, "error:", err)
	// Output:
	// element 1: [1 1 0 0]
	// element 1: [1 1 1 0]
	// element 1: [1 1 1 1]
	// error: <nil>
}

// inRing runs fn on n ranks.
func inRing(n int, o domain.Options, fn func(ring []*member) error) error {
	dir, err := os.MkdirTemp("", "ring")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ring, end, err := newRing(dir, n, o)
	if err == nil {
		err = fn(ring)
	}
	return errors.Join(err, end())
}

// The exact numbers of the contract's seventh case, for all ring sizes.
func TestRingAsWritten(t *testing.T) {
	kit.Check(t)
	for n, want := range map[int][]uint32{
		2: {2, 2}, 3: {2, 3, 3}, 4: {2, 4, 6, 4}, 8: {2, 8, 28, 56, 70, 56, 28, 8},
	} {
		err := inRing(n, domain.Options{}, func(ring []*member) error {
			ring[0].arange()
			err := rounds(ring, n, func(m *member) error { return asWritten(t.Context(), m) }, func() {})
			for i, m := range ring {
				for k := range elements {
					if got := m.element(k); got != want[i]*uint32(k) {
						t.Errorf("%d ranks: element %d of rank %d is %d, not %d", n, k, i, got, want[i]*uint32(k))
					}
				}
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// Where a send waits for its receive, the ring as written ends in a timeout
// that says which cycle.
func TestRingDeadlocks(t *testing.T) {
	kit.Check(t)
	err := inRing(4, domain.Options{NoEager: true}, func(ring []*member) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := rounds(ring, 1, func(m *member) error { return asWritten(ctx, m) }, func() { t.Error("a round ended") })
		for _, cycle := range []string{"rank 0 → 1 → 2 → 3 → 0", "rank 3 → 0 → 1 → 2 → 3"} {
			if !strings.Contains(err.Error(), cycle) {
				t.Errorf("%s is not named: %v", cycle, err)
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The corrected ring ends with equal data, whatever the size of the ring and
// the way of the sends.
func TestRingCorrected(t *testing.T) {
	kit.Check(t)
	for _, n := range []int{2, 3, 4, 8} {
		for _, o := range []domain.Options{{}, {NoEager: true}} {
			err := inRing(n, o, func(ring []*member) error {
				ring[0].arange()
				err := rounds(ring, n-1, func(m *member) error { return corrected(t.Context(), m) }, func() {})
				for i, m := range ring {
					for k := range elements {
						if m.element(k) != uint32(k) {
							t.Errorf("%d ranks: element %d of rank %d is %d", n, k, i, m.element(k))
						}
					}
				}
				return err
			})
			if err != nil {
				t.Errorf("%d ranks: %v", n, err)
			}
		}
	}
}
