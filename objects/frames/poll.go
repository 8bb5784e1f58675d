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
)

const (
	// pollFor is the time for which a reader polls before it sleeps. A wakeup costs about as
	// much.
	pollFor = 50 * time.Microsecond
	// pollLook is the number of polls between two readings of the clock.
	pollLook = 4
	// longestPause bounds the reads without polling after polls that found nothing.
	longestPause = 6
	// dozeFor is the time for which a reader sleeps in a thread of its own, before it leaves the
	// wait to the runtime. A thread that sleeps in the kernel is woken by the peer itself, and
	// goes on without the runtime's search for work.
	dozeFor = 2 * time.Millisecond
)

// Pollers bounds the readers that poll at one time: more than the processors allow would only
// delay each other, and the peers. The zero value allows none. A nil *Pollers
// sets no bound.
type Pollers struct {
	most           int32
	active, asleep atomic.Int32
}

// NewPollers returns a bound for this process: one processor is left to the peers.
func NewPollers() *Pollers { return &Pollers{most: int32(runtime.GOMAXPROCS(0) - 1)} }

// enter counts one more of the readers that n counts, unless there are enough.
func (p *Pollers) enter(n func(*Pollers) *atomic.Int32) bool {
	if p == nil {
		return true
	}
	if n(p).Add(1) <= p.most {
		return true
	}
	n(p).Add(-1)
	return false
}

func (p *Pollers) leave(n func(*Pollers) *atomic.Int32) {
	if p != nil {
		n(p).Add(-1)
	}
}

// polling and dozing are what Pollers bounds, each by itself.
func polling(p *Pollers) *atomic.Int32 { return &p.active }
func dozing(p *Pollers) *atomic.Int32  { return &p.asleep }

// Poller reads from a connection. Before it sleeps it polls for up to 50 µs, since most answers
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
	looked bool
	// pause counts the reads until the next poll, and missed the polls in a row that found
	// nothing.
	pause, missed int
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
	p.into = nil
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
	return first && (p.spin(int(fd)) || p.doze(int(fd)))
}

// spin reads until there is something, or the time is over.
func (p *Poller) spin(fd int) bool {
	if p.pause > 0 {
		p.pause--
		return false
	}
	if !p.all.enter(polling) {
		return false
	}
	defer p.all.leave(polling)
	began := time.Now()
	for turn := 1; ; turn++ {
		if p.read(fd) {
			p.missed = 0
			return true
		}
		if turn%pollLook == 0 {
			runtime.Gosched()
			if time.Since(began) > pollFor {
				break
			}
		}
	}
	p.missed++
	p.pause = min(1<<min(p.missed, 30)-2, longestPause)
	return false
}

// doze sleeps in the kernel until there is something to read, or the time is over.
func (p *Poller) doze(fd int) bool {
	if !p.all.enter(dozing) {
		return false
	}
	defer p.all.leave(dozing)
	limit := unix.NsecToTimespec(int64(dozeFor))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &limit, nil)
	return err == nil && n > 0 && p.read(fd)
}

// read makes one attempt.
func (p *Poller) read(fd int) bool {
	for {
		n, err := unix.Read(fd, p.into)
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
