package frames

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// pollFor is the time for which a reader polls before it sleeps. A wakeup costs about as
	// much.
	pollFor = 50 * time.Microsecond
	// pollLook is the number of polls between two readings of the clock.
	pollLook = 4
	// mostMissed bounds the polls in a row that found nothing as far as they count: after n of
	// them 2^n-2 reads do not poll. With many peers at once the processor is of more use to them.
	mostMissed = 6
)

// Pollers bounds the readers that poll at one time: more than the processors allow would only
// delay each other, and the peers. The zero value allows none. A nil *Pollers
// sets no bound.
type Pollers struct {
	most   int32
	active atomic.Int32
}

// NewPollers returns a bound for this process: one processor is left to the peers.
func NewPollers() *Pollers { return &Pollers{most: int32(runtime.GOMAXPROCS(0) - 1)} }

// enter counts one more reader, unless there are enough.
func (p *Pollers) enter() bool {
	if p == nil {
		return true
	}
	if p.active.Add(1) <= p.most {
		return true
	}
	p.active.Add(-1)
	return false
}

func (p *Pollers) leave() {
	if p != nil {
		p.active.Add(-1)
	}
}

// spinner polls before a reader sleeps, since most answers and next calls arrive sooner than a sleeping
// process wakes up. After polls that found nothing it polls less often. It must not be used concurrently.
type spinner struct {
	// all bounds the polls; nil sets no bound.
	all *Pollers
	// pause counts the reads until the next poll, and missed the polls in a row that found
	// nothing.
	pause, missed int
}

// looker reports whether there is something to read from a descriptor, or is within a time.
type looker interface {
	there(fd int32, within time.Duration) bool
}

// spin polls until there is something to read, or the time is over.
func (s *spinner) spin(of looker, fd int32, limit time.Duration) bool {
	if s.pause > 0 {
		s.pause--
		return false
	}
	if !s.all.enter() {
		return false
	}
	defer s.all.leave()
	began := time.Now()
	for turn := 1; ; turn++ {
		if of.there(fd, 0) {
			s.missed = max(0, s.missed-1)
			return true
		}
		if turn%pollLook == 0 && time.Since(began) > limit {
			break
		}
	}
	s.missed = min(s.missed+1, mostMissed)
	s.pause = 1<<s.missed - 2
	return false
}
