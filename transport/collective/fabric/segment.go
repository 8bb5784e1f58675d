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

// The layout of a segment: the owner's rankState, the counters of the rings from each rank of
// the host to the owner, and the rings.
const (
	rankStateSpace = 4096
	flowSpace      = 256
	pageSize       = 4096
)

// segment is memory of one rank through which the ranks of its host reach it.
type segment struct {
	bytes []byte
	size  int
	flows int
}

// segmentSize returns the size, in bytes, of the segment of a rank with n ranks on its
// host.
func segmentSize(n int) int { return ringsAt(n) + n*ringSize(n) }

func ringsAt(n int) int { return rankStateSpace + (n*flowSpace+pageSize-1)/pageSize*pageSize }

func (s *segment) rankState() *rankState { return rankStateAt(s.bytes) }

// pipe returns the ring from the i-th rank of the host to the owner.
func (s *segment) pipe(i int) pipe {
	at := ringsAt(s.flows) + i*s.size
	return pipe{flow: flowAt(s.bytes[rankStateSpace+i*flowSpace:]), data: s.bytes[at : at+s.size : at+s.size]}
}

// newSegment returns the segment in memory p, which must have the right size.
func newSegment(p []byte, n int) (*segment, error) {
	if len(p) != segmentSize(n) {
		return nil, fmt.Errorf("shared memory segment of wrong size, %d bytes for %d ranks: %w", len(p), n, ErrProtocol)
	}
	return &segment{bytes: p, size: ringSize(n), flows: n}, nil
}

// segments holds the segments of all ranks of the host.
type segments struct {
	own  *region.Buffer
	all  []*segment
	maps []window.Mapping
}

// close frees the memory, which must no longer be in use.
func (s *segments) close() error {
	err := closeMaps(s.maps)
	if s.own != nil {
		err = errors.Join(err, s.own.Close(context.Background()))
	}
	*s = segments{}
	return err
}

// slice bounds the sleep of a rank before it checks its context again.
const slice = 50 * time.Millisecond

// doze is the time for which a rank keeps its processor of Go's runtime while it sleeps. The others
// rarely take longer.
const doze = 300 * time.Microsecond

// The values of rankState.asleep, which name how a rank sleeps.
const (
	asleepAtBell uint32 = 1
	asleepInPoll uint32 = 2
)

// ring implements bells for ranks that may be in different processes: each sleeps on a word of
// its own rankState, or in poll.
func (o *over) ring(of plan.Rank, how uint32) {
	if how == asleepInPoll {
		o.knock(of)
		return
	}
	s := o.states[of]
	s.rung.Add(1)
	futexWake(&s.rung)
}

func (o *over) sleep(ctx context.Context, before uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rung := &o.states[o.me].rung
	err := error(unix.ETIMEDOUT)
	if o.spin > 0 {
		err = futexDoze(rung, before, doze)
	}
	if errors.Is(err, unix.ETIMEDOUT) {
		err = futexWait(rung, before, slice)
	}
	if err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ETIMEDOUT) {
		return ctx.Err()
	}
	return fmt.Errorf("fabric: sleep: %w", err)
}
