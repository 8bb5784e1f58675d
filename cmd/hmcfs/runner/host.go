package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHost is a host that can't be reached, or was lost.
var ErrHost = errors.New("a host is not available")

// host is a machine of the job, as the runner sees it. What it says is believed
// of its own ranks only, and no more is taken from it than they can have.
type host struct {
	part

	plan *Plan
	link *link
	// out has what is to be told: a host that does not read holds nobody up.
	out chan []byte
	// streams take the output of its ranks, and saved its buffers.
	streams []*stream
	saved   *saver
	events  chan<- event
	// over ends what would wait for the runner to listen.
	over <-chan struct{}
	// joined is closed when nothing more comes, and written when nothing goes.
	joined  chan struct{}
	written chan struct{}
	// greeted says that there is a hmcfs, and silent that it has said nothing for
	// too long.
	greeted atomic.Bool
	silent  atomic.Bool
	// waits are those who wait for the end of a barrier.
	waits sync.WaitGroup

	// What follows is the runner's loop's.

	// asked are the steps that it is to do, and said those that it has done.
	asked [256]bool
	said  [256]bool
	// lost is why it is no longer there.
	lost error
	// ended are its ranks that have.
	ended     []bool
	addresses []string
	verdicts  []*Verdict
	visits    visits
}

// visits are the ranks of a host that wait at barriers.
type visits struct {
	mu sync.Mutex
	// +checklocks:mu
	waiting map[uint64]waiter
}

// waiter is one of them.
type waiter struct {
	arrival arrival
	ch      chan answer
}

// arrive has a rank wait at a barrier. Its error is what no host says.
func (h *host) arrive(m *jobBarriers, v *visit) error {
	h.visits.mu.Lock()
	defer h.visits.mu.Unlock()
	_, double := h.visits.waiting[v.ID]
	if double || len(h.visits.waiting) >= mostArrivals {
		return fmt.Errorf("more ranks at barriers than it can have: %w", ErrTalk)
	}
	ch, fault := m.come(v.Arrival)
	if fault != "" {
		return h.tell(kindAnswer, passage{ID: v.ID, Answer: answer{Fault: fault}})
	}
	if h.visits.waiting == nil {
		h.visits.waiting = map[uint64]waiter{}
	}
	h.visits.waiting[v.ID] = waiter{v.Arrival, ch}
	h.waits.Go(func() {
		got := <-ch
		h.visits.mu.Lock()
		delete(h.visits.waiting, v.ID)
		h.visits.mu.Unlock()
		_ = h.tell(kindAnswer, passage{ID: v.ID, Answer: got}) // it can be encoded
	})
	return nil
}

// leave has a rank wait no longer, if it still does.
func (h *host) leave(m *jobBarriers, id uint64) {
	h.visits.mu.Lock()
	w, waits := h.visits.waiting[id]
	h.visits.mu.Unlock()
	if waits {
		m.leave(w.arrival, w.ch)
	}
}

// event is a message of a host, or its end.
type event struct {
	host *host
	kind kind
	what any
	err  error
}

const (
	// mostQueued bounds the messages that wait for a host.
	mostQueued = 4096
	// DefaultSilence is after how long without a word the other side is lost.
	DefaultSilence = time.Minute
	// mostArrivals bounds the barriers at which the ranks of a host wait.
	mostArrivals = 1024
)

// pulse returns the interval at which each side says that it is there.
func pulse(silence time.Duration) time.Duration { return max(silence/12, time.Millisecond) }

// open connects a host, and goes on by itself.
func (h *host) open(ctx context.Context, o *HostOptions, errs *lines) error {
	h.out, h.joined, h.written = make(chan []byte, mostQueued), make(chan struct{}), make(chan struct{})
	h.ended = make([]bool, h.count)
	if h.here() {
		h.link = connectHere(ctx, o)
	} else {
		command := slices.Concat(h.plan.Agent, []string{h.Name}, h.plan.RemoteCommand)
		a, err := startAgent(command, &stream{to: errs, prefix: "[" + h.Name + "] "})
		if err != nil {
			if e, ok := errors.AsType[*exec.Error](err); ok {
				err = e.Err
			}
			return &faultError{text: fmt.Sprintf("host %s: agent %q: %v; name another by --agent", h.Name, command[0], err), class: ErrHost}
		}
		h.link = &link{from: a.stdout, to: a.stdin, agent: a}
	}
	go h.speak()
	go h.listen()
	return nil
}

// tell tells the host something, at some time. The queue has room for all that a
// host can ask for at once; nobody waits for one that asks for more.
func (h *host) tell(k kind, v any) error {
	p, err := encode(k, v)
	if err != nil {
		return err
	}
	select {
	case h.out <- p:
	default:
	}
	return nil
}

// speak writes what the host is to be told, until the queue is closed.
func (h *host) speak() {
	defer close(h.written)
	t := time.NewTicker(pulse(h.plan.silence()))
	defer t.Stop()
	d, bounded := h.link.to.(interface{ SetWriteDeadline(time.Time) error })
	failed := false
	write := func(p []byte) {
		if failed {
			return
		}
		if bounded {
			_ = d.SetWriteDeadline(time.Now().Add(h.plan.silence()))
		}
		if _, err := h.link.to.Write(p); err != nil {
			failed = true
			h.post(event{host: h, err: h.why(err)})
		}
	}
	alive := appendFrame(nil, kindBeat)
	for {
		select {
		case p, more := <-h.out:
			if !more {
				return
			}
			write(p)
		case <-t.C:
			if h.link.agent != nil {
				write(alive)
			}
		}
	}
}

// listen takes what the host says, until the end.
func (h *host) listen() {
	defer close(h.joined)
	from := h.link.reader(h.plan.silence())
	noise, err := awaitGreeting(from)
	h.greeted.Store(err == nil)
	if err != nil && noise != "" {
		err = fmt.Errorf("%w; it says %q", err, noise)
	}
	for room := []byte(nil); err == nil; {
		var f frame
		if f, room, err = readFrame(from, room); err == nil {
			err = h.take(f)
		}
	}
	for _, s := range h.streams {
		s.finish()
	}
	_, mute := errors.AsType[*silentError](err)
	h.silent.Store(mute)
	h.post(event{host: h, err: h.why(err)})
	// What it has to say no longer counts, and it must not wait for us.
	h.drain(from)
}

// drain reads what nobody wants.
func (h *host) drain(from *bufio.Reader) {
	if h.link.agent == nil {
		_, _ = io.Copy(io.Discard, from)
	}
}

// why is an error that says which host is lost.
func (h *host) why(err error) error {
	if h.link.agent == nil {
		return fmt.Errorf("%w: %w", ErrHost, err)
	}
	text := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EPIPE) {
		text = "its connection was closed"
		if how := h.link.agent.how(); how != "" {
			text = how
		}
	}
	what := "is lost"
	if !h.greeted.Load() {
		what = "can't be reached"
	}
	return &faultError{text: fmt.Sprintf("host %s %s: %s", h.Name, what, text), class: ErrHost}
}

// post gives the runner's loop an event, if that still wants one.
func (h *host) post(e event) {
	select {
	case h.events <- e:
	case <-h.over:
	}
}

// take takes one message.
func (h *host) take(f frame) error {
	e := event{host: h, kind: f.kind}
	var err error
	switch f.kind {
	case kindBeat:
		return nil
	case kindOutput:
		return h.output(f.body)
	case kindData:
		return h.saved.take(f.body)
	case kindLoaded, kindVerified, kindSaved:
		h.saved.asked.Store(false)
		if len(f.body) > 0 || f.kind == kindSaved && !h.saved.complete() {
			return fmt.Errorf("a message of kind %d: %w", f.kind, ErrTalk)
		}
	case kindReady:
		e.what, err = checked(f, func(r *ready) error { return checkAddresses(r.Addresses, h.listens()) })
	case kindEnded:
		e.what, err = checked(f, func(v *Ending) error {
			if !h.has(v.Rank) {
				return fmt.Errorf("an end of rank %d: %w", v.Rank, ErrTalk)
			}
			return v.check()
		})
	case kindArrive:
		e.what, err = checked(f, func(v *visit) error {
			if !h.has(v.Arrival.Rank) || len(v.Arrival.Name) > longestArrival {
				return fmt.Errorf("rank %d at a barrier: %w", v.Arrival.Rank, ErrTalk)
			}
			return nil
		})
	case kindLeave:
		e.what, err = decode[departure](f)
	case kindVerdict:
		e.what, err = checked(f, func(v *Verdict) error { return h.plan.checkVerdict(v, h.first, h.count) })
	case kindFault:
		h.saved.asked.Store(false) // from now on it is the loop's
		e.what, err = decode[fault](f)
	case kindDone:
		e.what, err = decode[done](f)
	default:
		return fmt.Errorf("a message of kind %d: %w", f.kind, ErrTalk)
	}
	if err != nil {
		return err
	}
	if v, ok := e.what.(*Ending); ok {
		for i := range 2 {
			h.streams[2*(v.Rank-h.first)+i].finish()
		}
	}
	h.post(e)
	return nil
}

// checked is a message that was looked at.
func checked[T any](f frame, look func(*T) error) (*T, error) {
	v, err := decode[T](f)
	if err != nil {
		return nil, err
	}
	return v, look(v)
}

// has says whether a rank is one of the host's.
func (h *host) has(rank int) bool { return rank >= h.first && rank < h.first+h.count }

// listens returns the number of addresses that it has.
func (h *host) listens() int {
	if h.count == h.plan.Ranks {
		return 0
	}
	return h.count
}

// output passes on what a rank has written.
func (h *host) output(p []byte) error {
	if len(p) < 2 || !h.has(int(p[0])) || p[1] > 1 || len(p)-2 > piece {
		return fmt.Errorf("output of no rank: %w", ErrTalk)
	}
	_, err := h.streams[2*(int(p[0])-h.first)+int(p[1])].Write(p[2:])
	return err
}

// error is a fault of the host, with its name where there are several.
func (h *host) error(f *fault) error {
	text := strings.ToValidUTF8(f.Text, "?")
	if h.link.agent != nil {
		text = shorten(text)
	}
	if h.listens() > 0 {
		text = fmt.Sprintf("host %s: %s", h.Name, text)
	}
	return &faultError{text: text, class: classes()[f.Class]}
}

// inTime says what is wrong with a message at this time.
func (h *host) inTime(k, wanted kind) error {
	ok := h.asked[k] && !h.said[k]
	switch k {
	case kindFault:
		// In the place of an answer.
		ok = !h.said[wanted] && wanted != kindEnded && wanted != kindDone
	case kindVerdict:
		ok = h.asked[kindVerified] && !h.said[kindVerified]
	case kindArrive, kindLeave:
		ok = h.asked[kindEnded] // a rank may still be on its way out
	default:
	}
	if !ok {
		return fmt.Errorf("a message of kind %d at the wrong time: %w", k, ErrTalk)
	}
	return nil
}

// close ends the connection and waits for the host to go. One that never came,
// or is mute, is not waited for.
func (h *host) close() {
	h.waits.Wait() // the barriers are over
	close(h.out)
	grace := farewell
	if !h.said[kindReady] || h.silent.Load() {
		grace = time.Second
	}
	h.link.hangUp()
	<-h.written
	h.link.close(grace)
	<-h.joined
}
