package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
)

// The parts of a segment: the owner's seat, the counters of the ring of each rank
// of the host to the owner, and the rings.
const (
	seatSpace = 4096
	flowSpace = 256
	pageSize  = 4096
)

// segment is the memory in which the ranks of one host reach one of them.
type segment struct {
	bytes []byte
	size  int
	flows int
}

// segmentSize is the bytes of the segment of a rank, of n on its host.
func segmentSize(n int) int { return ringsAt(n) + n*ringSize(n) }

func ringsAt(n int) int { return seatSpace + (n*flowSpace+pageSize-1)/pageSize*pageSize }

func (s *segment) seat() *seat { return seatAt(s.bytes) }

// pipe is the ring from the i-th rank of the host to the owner.
func (s *segment) pipe(i int) pipe {
	at := ringsAt(s.flows) + i*s.size
	return pipe{flow: flowAt(s.bytes[seatSpace+i*flowSpace:]), data: s.bytes[at : at+s.size : at+s.size]}
}

// newSegment is the segment in some memory, which has the right size.
func newSegment(p []byte, n int) (*segment, error) {
	if len(p) != segmentSize(n) {
		return nil, fmt.Errorf("a segment of %d bytes for %d ranks: %w", len(p), n, ErrProtocol)
	}
	return &segment{bytes: p, size: ringSize(n), flows: n}, nil
}

// segments is the memory of all ranks of the host.
type segments struct {
	own  *region.Buffer
	all  []*segment
	maps []window.Mapping
}

// close gives the memory back. Nobody uses it any more.
func (s *segments) close() error {
	var errs []error
	for _, m := range s.maps {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if s.own != nil {
		errs = append(errs, s.own.Close(context.Background()))
	}
	*s = segments{}
	return errors.Join(errs...)
}

// slice bounds the sleep of a rank before it looks at its context.
const slice = 50 * time.Millisecond

// futexes are the bells of ranks that are processes, or look like ones: each
// sleeps at a word of its own seat.
type futexes struct {
	node *node
	// knock reaches a rank that sleeps in poll; nil where none does.
	knock func(of plan.Rank)
}

// The ways to sleep, as they stand in a seat.
const (
	asleepAtBell uint32 = 1
	asleepInPoll uint32 = 2
)

func (b *futexes) ring(of plan.Rank, how uint32) {
	if how == asleepInPoll {
		if b.knock != nil {
			b.knock(of)
		}
		return
	}
	s := b.node.seats[of]
	s.rung.Add(1)
	futexWake(&s.rung)
}

func (b *futexes) sleep(ctx context.Context, before uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := futexWait(&b.node.seats[b.node.me].rung, before, slice)
	if err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ETIMEDOUT) {
		return ctx.Err()
	}
	return fmt.Errorf("fabric: sleep: %w", err)
}
