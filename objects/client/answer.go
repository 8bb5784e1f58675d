package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// leaveLimit bounds the time that the daemon takes to end a call that the caller has
// cancelled: copies in progress are completed.
const leaveLimit = 30 * time.Second

// answer is one call in progress. Only add, fail and cancel may be used concurrently with other
// methods.
type answer struct {
	session *Session
	id      uint64
	// keys are the caller's. An answer that outlives the call has keys of its own.
	keys []string
	// first is the first frame, which ask has read, until each takes it.
	first part
	// ctx is that of the call, for why.
	ctx context.Context //nolint:containedctx // an answer belongs to one call
	// stop ends the watch on the call's context; nil for none. alone is true if it was in time.
	stop  func() bool
	alone bool
	// into receives the data of the answer to a call on files; nil is none.
	into []byte
	// once is true for a request, which no later daemon is asked for.
	once bool
	// over is true when the last frame has been read.
	over bool
	// begun is true after the report that the call continues in the background.
	begun bool
	// verb and call are those of the call, or file if it is one on files, to be asked again, and asked is memory for the latter;
	// started is the time at which it began, if it has a timeout.
	verb    adminapi.Verb
	call    *adminapi.Call
	called  adminapi.Call
	file    *fileAsk
	asked   fileAsk
	started time.Time
	// sent reports that the call was sent, or would have been if there were a daemon: it may be asked again. tried reports that
	// there was one, which may have carried it out. Session.sending guards both, and what is asked then.
	sent  bool
	tried bool
	// left is set when the caller needs no more of the answer.
	left atomic.Bool
	// came has a buffer of one: it signals that there are parts, or that err is set.
	came chan struct{}
	// told says which keys have a result.
	told []bool

	mu sync.Mutex
	// number is id while the answer is that of a call.
	// +checklocks:mu
	number uint64
	// buf is memory for the body of one frame; nil while a frame uses it, and used has that.
	// +checklocks:mu
	buf, used []byte
	// +checklocks:mu
	parts []part
	// answered is set when the last part has arrived.
	// +checklocks:mu
	answered bool
	// err is set when no more parts will arrive although the last one has not.
	// +checklocks:mu
	err error
}

// part is a frame of an answer.
type part struct {
	kind frames.Kind
	body []byte
	// data is the rest of the frame if it was read into the answer's memory.
	data []byte
	// files are the descriptors that came with it, and lost is the error of their reception.
	files []*os.File
	lost  error
}

// isLast reports whether no more parts follow.
func (p part) isLast() bool {
	return p.kind == frames.KindLast || p.kind == frames.KindFailure || p.kind == frames.KindFileAnswer || p.kind == frames.KindReply
}

const (
	// maxSpare bounds the answers of a session that are kept to be used again, and longestSpare the
	// frames, in bytes, and the keys of each.
	maxSpare     = 8
	longestSpare = sessionBuffer
)

// newAnswer returns the answer to a call. It is new, or one that recycle has kept.
func (s *Session) newAnswer(ctx context.Context) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var a *answer
	if n := len(s.spare); n > 0 {
		a = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		a = &answer{session: s, came: make(chan struct{}, 1)}
	}
	a.ctx, a.stop, a.alone, a.over, a.begun = ctx, nil, true, false, false
	a.left.Store(false)
	return a
}

// recycle keeps the memory of an answer for a later call, if nobody else can use this one any more.
// The caller has ended it, and uses it no longer.
func (a *answer) recycle() {
	if !a.alone || !a.over { // in this order: one that is not alone is still read
		return
	}
	a.unask() // while it is answered: askAgainLocked must not find it neither answered nor forgotten
	a.mu.Lock()
	if a.used != nil {
		a.buf = a.used
	}
	keep := a.err == nil && len(a.parts) == 0 && cap(a.told) <= longestSpare
	a.number, a.used, a.answered = 0, nil, false
	a.mu.Unlock()
	if !keep {
		return
	}
	select {
	case <-a.came:
	default:
	}
	a.keys, a.ctx, a.into, a.first = nil, nil, nil, part{}
	s := a.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, a)
	}
}

// unask drops what is needed to ask the call again.
func (a *answer) unask() {
	s := a.session
	if s.continues == 0 {
		return
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	a.sent, a.tried = false, false
	a.call, a.file, a.asked, a.called = nil, nil, fileAsk{}, adminapi.Call{}
}

// room returns memory for a part of a frame of the call with a number, and that for the data of an
// answer to a call on files, of at most n bytes.
func (a *answer) room(number uint64, fixed, n int) (body, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.number != number {
		return make([]byte, n), nil
	}
	if n > fixed && n-fixed <= len(a.into) {
		data, n = a.into[:n-fixed], fixed
	}
	if a.used == nil && n <= longestSpare {
		if cap(a.buf) < n {
			a.buf = make([]byte, n)
		}
		body, a.used, a.buf = a.buf[:n], a.buf, nil
		return body, data
	}
	return make([]byte, n), data
}

// add adds a frame that has arrived for the call with a number; its body becomes the answer's.
func (a *answer) add(number uint64, p part) {
	a.mu.Lock()
	if a.number == number {
		a.parts = append(a.parts, p)
		a.answered = p.isLast()
	} else {
		adminapi.CloseAll(p.files)
	}
	a.mu.Unlock()
	a.signal()
}

// fail ends the answer early.
func (a *answer) fail(err error) {
	a.mu.Lock()
	if a.err == nil {
		a.err = err
	}
	a.mu.Unlock()
	a.signal()
	a.session.interrupt()
}

func (a *answer) signal() {
	select {
	case a.came <- struct{}{}:
	default:
	}
}

// next waits for the next frame, and reads those of others meanwhile.
func (a *answer) next() (part, error) {
	for {
		a.mu.Lock()
		if len(a.parts) > 0 {
			p := a.parts[0]
			n := copy(a.parts, a.parts[1:])
			a.parts[n] = part{} // its body can be large
			a.parts = a.parts[:n]
			a.mu.Unlock()
			a.over = p.isLast()
			return p, nil
		}
		err := a.err
		a.mu.Unlock()
		if err != nil {
			return part{}, err
		}
		select {
		case <-a.came:
		case <-a.session.role:
			a.session.readFor(a)
		}
	}
}

// isAnswered reports whether the whole answer has arrived.
func (a *answer) isAnswered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered
}

// ready reports whether next has something to return.
func (a *answer) ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.parts) > 0 || a.err != nil
}

// ask makes a call. The caller must end the answer.
//
// The error is that of the whole call. asked is true if the daemon may have started the call.
func (s *Session) ask(ctx context.Context, verb adminapi.Verb, q *adminapi.Call) (a *answer, asked bool, err error) {
	if err = s.ended(); err != nil {
		return nil, false, err
	}
	if len(q.Keys) > hetero.MaxKeys {
		return nil, false, fmt.Errorf("%w: %d keys, the maximum is %d in one call", hetero.ErrInvalid, len(q.Keys), hetero.MaxKeys)
	}
	a = s.newAnswer(ctx)
	a.keys = q.Keys
	if err = s.start(a); err != nil {
		return nil, false, err
	}
	if s.continues > 0 {
		a.verb, a.called = verb, *q // q itself would have to be allocated
		a.call = &a.called
		if q.Timeout > 0 {
			a.started = time.Now()
		}
	}
	if err = s.sendNew(a, verb, q); err != nil {
		s.forget(a)
		return nil, false, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	}
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, a.cancel)
	}
	a.first, err = a.next()
	if err == nil && a.first.kind != frames.KindFailure {
		return a, true, nil
	}
	if err == nil {
		asked, err = false, s.failureOf(a.first.body)
	} else {
		asked, err = true, a.why(err)
	}
	a.end()
	return nil, asked, err
}

// sendNew sends a call. Its error is that of encoding.
func (s *Session) sendNew(a *answer, verb adminapi.Verb, q *adminapi.Call) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	a.tried = !s.cut
	err := s.sendCall(verb, a.id, q, false)
	a.sent = err == nil
	return err
}

// repeat sends the call of an answer again. It is a new one if there was no daemon to send it to before.
//
// +checklocks:s.sending
func (a *answer) repeat(s *Session) error {
	again := a.tried
	a.tried = again || !s.cut
	if a.file != nil {
		return s.sendFileCall(a.file, a.id, again)
	}
	q := a.call
	if q.Timeout > 0 {
		rest := *q
		rest.Timeout = max(adminapi.Duration(time.Millisecond), q.Timeout-adminapi.Duration(time.Since(a.started)))
		q = &rest
	}
	return s.sendCall(a.verb, a.id, q, again)
}

// sendCall sends a call. Its error is that of encoding.
//
// +checklocks:s.sending
func (s *Session) sendCall(verb adminapi.Verb, id uint64, q *adminapi.Call, again bool) error {
	frame, err := frames.AppendCall(frames.Begin(s.out[:0], frames.KindCall, frames.VerbNumber(verb), id), q)
	if err != nil {
		return err
	}
	if cap(frame) <= sessionBuffer {
		s.out = frame
	}
	if size := len(frame) - frames.HeaderSize; size > frames.MaxBody {
		return fmt.Errorf("the call has %d bytes, the maximum is %d", size, frames.MaxBody)
	}
	if again {
		frames.SetAgain(frame)
	}
	if err = frames.Finish(frame, 0); err == nil {
		s.writeLocked(frame)
	}
	return err
}

// keep makes the call of an answer independent of its caller's memory: it may be asked again after
// the caller has gone on.
func (a *answer) keep() {
	a.keys = slices.Clone(a.keys)
	if a.session.continues == 0 {
		return
	}
	q := *a.call
	q.Keys, q.Lists = a.keys, slices.Clone(q.Lists)
	for i := range q.Lists {
		q.Lists[i].Blobs = slices.Clone(q.Lists[i].Blobs)
	}
	a.session.sending.Lock()
	defer a.session.sending.Unlock()
	a.call = &q
}

// cancel tells the daemon that the rest of the answer is no longer needed. What it answers to
// that can be read for a while.
func (a *answer) cancel() {
	if a.leave() {
		return
	}
	time.AfterFunc(leaveLimit, func() { a.fail(errLate) })
}

// leave tells the daemon that the rest of the answer is no longer needed. It returns true if there is no
// daemon, and therefore no rest.
func (a *answer) leave() (away bool) {
	s := a.session
	a.left.Store(true)
	s.sending.Lock()
	s.writeLocked(frames.Begin(nil, frames.KindCancel, 0, a.id))
	away = s.cut && s.continues > 0
	s.sending.Unlock()
	if away {
		a.fail(errAway)
	}
	return away
}

// errLate reports that the daemon does not end a call that was cancelled.
var errLate = errors.New("the daemon did not end a cancelled call in time")

// end ends the use of the answer. A call that is not over is cancelled, and the rest of its
// answer is read in the background: a daemon whose answers nobody reads ends the session.
func (a *answer) end() {
	a.unwatch()
	if a.over {
		a.session.forget(a)
		return
	}
	a.leave()
	a.alone = false
	go func() {
		defer a.session.forget(a)
		for !a.over {
			p, err := a.next()
			if err != nil {
				return
			}
			adminapi.CloseAll(p.files)
		}
	}()
}

// unwatch ends the watch on the call's context.
func (a *answer) unwatch() {
	if a.stop != nil {
		a.alone = a.stop() && a.alone
		a.stop = nil
	}
}

// each passes the lines of keys to line, and the indices of those that say nothing else to plain unless
// that is nil, up to the report that the call continues in the
// background, or to the end. begun is true if there was such a report; err is its error, or that
// of the connection, or io.EOF.
func (a *answer) each(plain func(n int), line func(adminapi.Line)) (begun bool, err error) {
	for {
		p := a.first
		if a.first = (part{}); p.kind == 0 {
			if p, err = a.next(); err != nil {
				return false, err
			}
		}
		switch p.kind {
		case frames.KindLines, frames.KindLast:
			err = frames.ParseLines(p.body, len(a.keys), plain, func(l adminapi.Line) error {
				line(l)
				return nil
			})
			if err != nil {
				return false, fmt.Errorf("%w: %w", errAnswer, err)
			}
			if p.kind == frames.KindLast {
				return false, io.EOF
			}
		case frames.KindBegun:
			if again := a.begun; again {
				continue // the call was asked again
			}
			a.begun = true
			return true, a.session.failureOf(p.body)
		case frames.KindFailure:
			return false, a.session.failureOf(p.body)
		default:
			return false, errAnswer
		}
	}
}

// why returns the error of keys for which no line arrived.
func (a *answer) why(cause error) error {
	s := a.session
	switch {
	case errors.Is(cause, io.ErrUnexpectedEOF): // the session has ended
		return s.ended()
	case a.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", hetero.ContextError(a.ctx.Err()), cause)
	case errors.Is(cause, io.EOF), errors.Is(cause, errAnswer):
		return fmt.Errorf("%w: %w", hetero.ErrIO, errors.Join(errAnswer, cause))
	}
	return cause
}
