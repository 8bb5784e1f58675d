package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Timeouts for hosts.
const (
	// DefaultHostTimeout bounds the wait for a host to become ready.
	DefaultHostTimeout = 2 * time.Minute
	// farewell bounds the time for a host to clean up, and to report the end of ranks that
	// were killed.
	farewell = 10 * time.Second
)

// watch is a running job: one loop, which handles messages of hosts and outside events. The
// local machine is a host like the others.
type watch struct {
	plan     *Plan
	hosts    []*host
	barriers *jobBarriers
	events   chan event
	// over is closed when the loop has ended.
	over   chan struct{}
	logs   []*os.File
	report *Report
	// started reports that the programs were started.
	started bool
	// cause is the reason why the job is ended early.
	cause error
	// closing reports that the job is over; remains are the errors since then.
	closing bool
	remains []error
	// wanted is the answer that the loop waits for.
	wanted kind

	stopped <-chan struct{}
	force   <-chan struct{}
	// forced reports that force has fired.
	forced bool
	// late ends the run, kill the grace period of ranks that were asked to end, and giveUp
	// the wait for hosts that do not answer.
	late, kill, giveUp <-chan time.Time
}

func newWatch(ctx context.Context, p *Plan, force <-chan struct{}) *watch {
	return &watch{
		plan: p, barriers: newJobBarriers(p.Ranks), events: make(chan event), over: make(chan struct{}),
		report: &Report{Ranks: p.Ranks}, stopped: ctx.Done(), force: force,
	}
}

// open connects to all hosts.
func (w *watch) open(ctx context.Context) error {
	p := w.plan
	streams := [2]*lines{{out: p.Out}, {out: p.Errors}}
	for _, part := range p.parts() {
		h := &host{part: part, plan: p, events: w.events, over: w.over}
		h.saved = &saver{plan: p, rank: part.first, last: part.first + part.count - 1}
		for rank := part.first; rank < part.first+part.count; rank++ {
			log, err := w.log(rank)
			if err != nil {
				return err
			}
			for _, to := range streams {
				h.streams = append(h.streams, &stream{to: to, prefix: prefixOf(rank, p.Ranks), log: log})
			}
		}
		if err := h.open(ctx, streams[1]); err != nil {
			return err
		}
		w.hosts = append(w.hosts, h)
	}
	return w.brief()
}

// log creates the file for the output of a rank; nil if there is none.
func (w *watch) log(rank int) (io.Writer, error) {
	if w.plan.LogDir == "" {
		return nil, nil //nolint:nilnil // nil means no log file
	}
	f, err := create(w.plan.LogDir, "rank"+strconv.Itoa(rank)+".log")
	if err != nil {
		return nil, err
	}
	w.logs = append(w.logs, f)
	return f, nil
}

// brief sends each host its part.
func (w *watch) brief() error {
	p := w.plan
	all := brief{
		Config: p.sent(), Program: wordsOf(p.Program), Window: p.Window, Grace: p.Grace, Hosts: len(w.hosts), Dir: word(p.Dir),
		Transport: p.Transport, Unbound: p.Unbound, Silence: p.silence(),
	}
	all.Job, all.Secret = identify()
	for i, h := range w.hosts {
		b := w.briefOf(all, i)
		if err := h.tell(kindBrief, &b); err != nil {
			return fmt.Errorf("the job is too large to be sent to its hosts: %w", err)
		}
	}
	return nil
}

// briefOf returns the brief of one host, from what all hosts are told.
func (w *watch) briefOf(b brief, i int) brief {
	h := w.hosts[i]
	b.First, b.Count, b.Host, b.Name, b.Address = h.first, h.count, i, h.Name, h.Address
	b.WorkDir, b.Env = word(w.plan.WorkDir), wordsOf(w.plan.Export)
	if h.here() {
		b.WorkDir, b.Silence = nil, 0
	}
	for _, other := range w.hosts {
		if other != h && !other.here() {
			b.Peers = append(b.Peers, other.Name)
		}
	}
	return b
}

// silence returns the time for which a host may be silent.
func (p *Plan) silence() time.Duration { return cmp.Or(p.Silence, DefaultSilence) }

// course runs the job step by step: a step ends when all hosts have completed it.
func (w *watch) course() error {
	w.giveUp = time.After(cmp.Or(w.plan.HostTimeout, DefaultHostTimeout))
	w.until(kindReady)
	if w.giveUp = nil; w.cause != nil {
		return w.cause
	}
	var all addressBook
	for _, h := range w.hosts {
		all.Addresses = append(all.Addresses, h.addresses...)
	}
	w.step(kindBook, &all, kindLoaded)
	if w.cause != nil {
		return w.cause
	}
	w.started = true
	if w.plan.Timeout > 0 {
		w.late = time.After(w.plan.Timeout)
	}
	begin := time.Now()
	w.step(kindStart, nil, kindEnded)
	w.report.Seconds = time.Since(begin).Seconds()
	slices.SortFunc(w.report.Endings, func(a, b Ending) int { return a.Rank - b.Rank })
	if w.cause == nil && w.plan.config.Golden != nil {
		w.step(kindVerify, nil, kindVerified)
		w.verdict()
	}
	return errors.Join(w.cause, w.save())
}

// verdict combines the verdicts of all hosts, in the order of their ranks.
func (w *watch) verdict() {
	if w.cause != nil {
		return
	}
	w.report.Verdict = &Verdict{}
	for _, h := range w.hosts {
		for _, v := range h.verdicts {
			w.report.Verdict.add(v)
		}
	}
}

// save fetches all buffers, also after a failure.
func (w *watch) save() error {
	if w.plan.Save == "" {
		return nil
	}
	var errs []error
	for _, h := range w.hosts {
		h.saved.asked.Store(true)
	}
	failed := w.cause != nil
	if failed && !w.forced {
		// No ranks are left to be killed, and the hosts have time as long as bytes arrive.
		w.kill, w.giveUp = nil, time.After(w.plan.silence())
	}
	w.step(kindSave, nil, kindSaved)
	for _, h := range w.hosts {
		if h.lost == nil {
			errs = append(errs, h.saved.failed)
		}
	}
	if !failed {
		errs = append(errs, w.cause)
	}
	return errors.Join(errs...)
}

// step makes all hosts execute an order.
func (w *watch) step(order kind, what any, answer kind) {
	w.tell(order, what)
	w.until(answer)
}

// tell sends a message to all hosts that are not lost.
func (w *watch) tell(k kind, v any) {
	for _, h := range w.hosts {
		if h.lost == nil {
			_ = h.tell(k, v) // it can be encoded
		}
	}
}

// until handles events until all hosts have answered, or can't.
func (w *watch) until(answer kind) {
	w.wanted = answer
	for _, h := range w.hosts {
		h.asked[answer] = true
	}
	for slices.ContainsFunc(w.hosts, w.waits) {
		w.next()
	}
}

// waits reports whether the loop still waits for an answer of a host. A host that is not
// ready is not waited for when the job ends.
func (w *watch) waits(h *host) bool {
	switch {
	case h.lost != nil, h.said[w.wanted], w.wanted == kindReady && w.cause != nil:
		return false
	case w.wanted == kindEnded:
		return slices.Contains(h.ended, false)
	}
	return true
}

// next handles the next event.
func (w *watch) next() {
	select {
	case e := <-w.events:
		if err := w.take(e); err != nil {
			w.lose(e.host, e.host.why(err))
		}
	case <-w.stopped:
		w.stopped = nil
		w.end(ErrStopped)
	case <-w.late:
		w.end(fmt.Errorf("%w: the run took longer than its timeout of %v", ErrTimeout, w.plan.Timeout))
	case <-w.force:
		w.force, w.forced = nil, true
		w.tell(kindNow, nil)
		w.giveUp = time.After(farewell)
	case <-w.kill:
		w.tell(kindNow, nil)
		w.giveUp = time.After(farewell)
	case <-w.giveUp:
		w.giveUp = nil
		for _, h := range w.hosts {
			switch {
			case h.link.agent == nil || !w.waits(h):
			case w.wanted == kindSaved && h.saved.moved.Swap(false):
				w.giveUp = time.After(w.plan.silence())
			default:
				w.lose(h, &faultError{text: fmt.Sprintf("host %s does not answer", h.Name), class: ErrHost})
			}
		}
	}
}

// take handles a message of a host. An error means that the host violates the protocol.
func (w *watch) take(e event) error {
	h := e.host
	if e.err != nil {
		w.lose(h, e.err)
		return nil
	}
	if err := h.inTime(e.kind, w.wanted); err != nil {
		return err
	}
	switch v := e.what.(type) {
	case *addressBook:
		h.addresses = v.Addresses
	case *Ending:
		return w.note(h, *v)
	case *numberedArrival:
		return w.barriers.come(h, v)
	case *departure:
		w.barriers.leave(h, v.ID)
	case *Verdict:
		if len(h.verdicts) > h.count*len(w.plan.config.Outputs) {
			return fmt.Errorf("more verdicts than outputs: %w", ErrProtocol)
		}
		h.verdicts = append(h.verdicts, v)
		return nil
	case *fault:
		h.said[w.wanted] = true // the fault replaces the answer
		if w.wanted == kindSaved && w.cause != nil {
			w.remains = append(w.remains, h.error(v))
		}
		w.end(h.error(v))
		return nil
	case *done:
		if v.Fault != "" {
			w.end(h.error(&fault{Text: v.Fault}))
		}
		h.link.hangUp()
	}
	h.said[e.kind] = e.kind != kindEnded
	return nil
}

// note records that a rank has ended.
func (w *watch) note(h *host, e Ending) error {
	if h.ended[e.Rank-h.first] {
		return fmt.Errorf("rank %d has ended twice: %w", e.Rank, ErrProtocol)
	}
	h.ended[e.Rank-h.first] = true
	w.barriers.end(e.Rank)
	e.Ended = w.cause != nil && e.Failed()
	if len(w.hosts) > 1 {
		e.Host = h.Name
	}
	w.report.Endings = append(w.report.Endings, e)
	if e.Failed() && w.cause == nil {
		w.end(&FailedError{First: e, Others: w.plan.Ranks - len(w.report.Endings)})
	}
	return nil
}

// lose marks a host as lost and its ranks as ended.
func (w *watch) lose(h *host, err error) {
	if h.lost != nil || h.said[kindDone] {
		return
	}
	h.lost = err
	h.link.hangUp()
	if !w.started {
		w.end(err)
		return
	}
	for i, ended := range h.ended {
		if !ended {
			_ = w.note(h, Ending{Rank: h.first + i, Code: -1, Error: err.Error()}) // it has not ended before
		}
	}
	w.end(err) // its ranks may have ended, but their outputs may still be needed
}

// end asks all ranks to end. Only the first cause is kept.
func (w *watch) end(cause error) {
	switch {
	case w.closing:
		w.remains = append(w.remains, cause)
		return
	case w.cause == nil:
		w.cause = cause
	case !errors.Is(cause, ErrStopped):
		return
	}
	w.tell(kindSoon, nil)
	w.kill = time.After(cmp.Or(w.plan.Grace, DefaultGrace))
}

// close ends what is left of the job, on all hosts.
func (w *watch) close() error {
	w.closing = true
	w.barriers.close()
	w.stopped, w.late, w.kill = nil, nil, nil
	w.giveUp = time.After(farewell)
	for _, h := range w.hosts {
		if !h.said[kindReady] && h.lost == nil {
			h.lost = ErrHost // it has nothing to clean up
		}
	}
	w.tell(kindBye, nil)
	w.until(kindDone)
	close(w.over)
	var all sync.WaitGroup
	for _, h := range w.hosts {
		all.Go(h.close)
	}
	all.Wait()
	for _, f := range w.logs {
		w.remains = append(w.remains, f.Close())
	}
	return errors.Join(w.remains...)
}
