package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHost reports a host that can't be reached, or was lost.
var ErrHost = errors.New("a host is not available")

// host is the runner's view of a machine of the job. Its messages are accepted for its own
// ranks only, within the limits of what these can send.
type host struct {
	part

	plan *Plan
	link *link
	// out queues outgoing messages, so that a host that does not read blocks no one.
	out chan []byte
	// streams receive the output of its ranks, and saved its buffers.
	streams []*stream
	saved   *saver
	events  chan<- event
	// over is closed when the runner no longer receives events.
	over <-chan struct{}
	// joined is closed when listen has ended, and written when speak has.
	joined  chan struct{}
	written chan struct{}
	// greeted reports that hmcfs has answered on the host, and silent that the host was
	// silent for too long.
	greeted atomic.Bool
	silent  atomic.Bool

	// The following fields are used by the runner's loop only.

	// asked holds the steps requested from the host, and said those it has completed.
	asked [256]bool
	said  [256]bool
	// lost is the error with which the host was lost, or nil.
	lost error
	// ended reports, for each of its ranks, that it has ended.
	ended     []bool
	addresses []string
	verdicts  []*Verdict
	// arrivals holds its ranks that wait at barriers, by the numbers of their arrivals.
	arrivals map[uint64]arrival
}

// event is a message of a host, or its end.
type event struct {
	host *host
	kind kind
	what any
	err  error
}

const (
	// mostQueued bounds the outgoing messages queued for a host.
	mostQueued = 4096
	// DefaultSilence is the time without a message after which the other side is lost.
	DefaultSilence = time.Minute
)

// pulse returns the interval of heartbeats.
func pulse(silence time.Duration) time.Duration { return max(silence/12, time.Millisecond) }

// open connects to a host, and starts the goroutines for both directions.
func (h *host) open(ctx context.Context, errs *lines) error {
	h.out, h.joined, h.written = make(chan []byte, mostQueued), make(chan struct{}), make(chan struct{})
	h.ended, h.arrivals = make([]bool, h.count), map[uint64]arrival{}
	if h.here() {
		h.link = connectHere(ctx, &h.plan.HostOptions)
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

// tell queues a message for the host, without blocking. The queue has room for everything
// that a host can ask for at once; messages beyond it are dropped.
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

// release ends the wait of a rank at a barrier.
func (h *host) release(id uint64, a answer) {
	delete(h.arrivals, id)
	_ = h.tell(kindAnswer, passage{ID: id, Answer: a}) // it can be encoded
}

// speak writes queued messages and heartbeats, until the queue is closed.
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

// listen reads the messages of the host, until the end.
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
	if h.link.agent == nil {
		// Further messages no longer count, but the host must not block on writing them.
		_, _ = io.Copy(io.Discard, from)
	}
}

// why adds the name of the lost host to an error.
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

// post sends an event to the runner's loop, if that is still running.
func (h *host) post(e event) {
	select {
	case h.events <- e:
	case <-h.over:
	}
}

// take handles one message.
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
			return fmt.Errorf("a message of kind %d: %w", f.kind, ErrProtocol)
		}
	case kindReady:
		e.what, err = checked(f, func(r *addressBook) error { return checkAddresses(r.Addresses, h.listens()) })
	case kindEnded:
		e.what, err = checked(f, func(v *Ending) error {
			if !h.has(v.Rank) {
				return fmt.Errorf("an end of rank %d: %w", v.Rank, ErrProtocol)
			}
			return v.check()
		})
	case kindArrive:
		e.what, err = checked(f, func(v *numberedArrival) error {
			if !h.has(v.Arrival.Rank) || len(v.Arrival.Name) > longestArrival {
				return fmt.Errorf("rank %d at a barrier: %w", v.Arrival.Rank, ErrProtocol)
			}
			return nil
		})
	case kindLeave:
		e.what, err = decode[departure](f)
	case kindVerdict:
		e.what, err = checked(f, func(v *Verdict) error { return h.plan.checkVerdict(v, h.first, h.count) })
	case kindFault:
		h.saved.asked.Store(false) // from now on the loop reports its errors
		e.what, err = decode[fault](f)
	case kindDone:
		e.what, err = decode[done](f)
	default:
		return fmt.Errorf("a message of kind %d: %w", f.kind, ErrProtocol)
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

// checked decodes a message and validates it.
func checked[T any](f frame, look func(*T) error) (*T, error) {
	v, err := decode[T](f)
	if err != nil {
		return nil, err
	}
	return v, look(v)
}

// has reports whether a rank belongs to the host.
func (h *host) has(rank int) bool { return rank >= h.first && rank < h.first+h.count }

// listens returns the number of addresses of the host.
func (h *host) listens() int {
	if h.count == h.plan.Ranks {
		return 0
	}
	return h.count
}

// output passes on the output of a rank.
func (h *host) output(p []byte) error {
	if len(p) < 2 || !h.has(int(p[0])) || p[1] > 1 || len(p)-2 > piece {
		return fmt.Errorf("output of no rank: %w", ErrProtocol)
	}
	_, err := h.streams[2*(int(p[0])-h.first)+int(p[1])].Write(p[2:])
	return err
}

// error returns a fault of the host as an error, with the host's name if there are several.
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

// inTime reports an error if a message is not allowed at this time.
func (h *host) inTime(k, wanted kind) error {
	ok := h.asked[k] && !h.said[k]
	switch k {
	case kindFault:
		// It replaces an answer.
		ok = !h.said[wanted] && wanted != kindEnded && wanted != kindDone
	case kindVerdict:
		ok = h.asked[kindVerified] && !h.said[kindVerified]
	case kindArrive, kindLeave:
		ok = h.asked[kindEnded] // a rank may still be leaving
	default:
	}
	if !ok {
		return fmt.Errorf("a message of kind %d at the wrong time: %w", k, ErrProtocol)
	}
	return nil
}

// close closes the connection and waits for the host to end, but only briefly if it never
// became ready or is silent.
func (h *host) close() {
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
