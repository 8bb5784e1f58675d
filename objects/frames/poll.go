package frames

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/nowait"
)

const (
	// pollFor is the time for which a reader polls before it sleeps: longer than a peer takes to wake up and answer. With less, two
	// that sleep stay asleep, since each finds nothing until the other has woken.
	pollFor = 150 * time.Microsecond
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

// Poller reads from a connection. Before it sleeps it polls for up to 150 µs, since most answers
// and next calls arrive sooner than a sleeping process wakes up. After polls that found nothing it
// polls less often. It must not be used concurrently.
type Poller struct {
	raw  syscall.RawConn
	all  *Pollers
	try  func(fd uintptr) bool // poll, made once
	into []byte
	n    int
	err  error
	// looked is true if poll was called during this Read: it sleeps after the first call.
	looked  bool
	backoff backoff
	// patience is the time for which the next read polls before it sleeps, beyond pollFor.
	patience time.Duration
}

// Expect sets how long the next read polls, beyond the usual time, for the next call of a peer that is busy with a long answer.
func (p *Poller) Expect(longer time.Duration) { p.patience = longer }

// backoff has reads poll less often after polls that found nothing.
type backoff struct {
	// pause counts the reads until the next poll, and missed the polls that found nothing.
	pause, missed int
}

// skips reports whether a read does not poll.
func (b *backoff) skips() bool {
	if b.pause > 0 {
		b.pause--
		return true
	}
	return false
}

// hit and miss record the end of a poll: with something to read, or without.
func (b *backoff) hit() { b.missed = max(0, b.missed-1) }

func (b *backoff) miss() {
	b.missed = min(b.missed+1, mostMissed)
	b.pause = 1<<b.missed - 2
}

// NewPoller returns a reader of a connection.
func NewPoller(c syscall.Conn, all *Pollers) (*Poller, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &Poller{raw: raw, all: all}
	p.try = p.poll
	return p, nil
}

// Read implements io.Reader.
func (p *Poller) Read(b []byte) (int, error) {
	p.into, p.n, p.err, p.looked = b, 0, nil, false
	err := p.raw.Read(p.try)
	p.into, p.patience = nil, 0
	if err == nil {
		err = p.err
	}
	return p.n, err
}

// poll reads once, or until the time is over. It reports whether the read is done.
func (p *Poller) poll(fd uintptr) bool {
	first := !p.looked
	p.looked = true
	if p.read(int(fd)) {
		return true
	}
	return first && p.spin(int(fd))
}

// spin reads until there is something, or the time is over.
func (p *Poller) spin(fd int) bool {
	if p.backoff.skips() || !p.all.enter() {
		return false
	}
	defer p.all.leave()
	began := time.Now()
	for turn := 1; ; turn++ {
		if p.read(fd) {
			p.backoff.hit()
			return true
		}
		if turn%pollLook == 0 {
			runtime.Gosched()
			if time.Since(began) > pollFor+p.patience {
				break
			}
		}
	}
	p.backoff.miss()
	return false
}

// read makes one attempt.
func (p *Poller) read(fd int) bool {
	for {
		n, err := nowait.Read(uintptr(fd), p.into)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			p.err = os.NewSyscallError("read", err)
		case n == 0 && len(p.into) > 0:
			p.err = io.EOF
		default:
			p.n = n
		}
		return true
	}
}
