package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// request is one request of a session in progress: what sets something up, and lists and streams.
type request struct {
	framed *framed
	id     uint64
	verb   frames.RequestVerb
	body   []byte
	// descriptors is the number of those that were announced.
	descriptors int
	// after is closed once those of the request before have been received, and passed once those of this one have.
	after, passed chan struct{}
	// taken is the memory reserved from the budget of the user.
	taken int64
	// begun is the time at which run began, and recorded is set once Calls has the request.
	begun    time.Time
	recorded bool
}

// request starts a request. Its error ends the session.
func (f *framed) request(h frames.Header) error {
	q := &request{framed: f, id: h.ID, verb: frames.RequestVerb(h.Verb), descriptors: int(h.Descriptors)}
	fault, err := q.receive(int(h.Size))
	if err != nil {
		f.one.user.memory.Release(q.taken)
		return err
	}
	ctx := f.life
	if fault == nil {
		ctx, fault = f.admit(ctx, h.ID)
	}
	if q.descriptors > 0 {
		q.after, q.passed = f.passed, make(chan struct{})
		f.passed = q.passed
	}
	if fault != nil {
		f.one.user.memory.Release(q.taken)
		// The channel has room for few, and those that follow would be looked for behind them.
		files, _ := q.received() // that they are missing is the lesser fault
		adminapi.CloseAll(files)
		return q.refuse(fault)
	}
	f.one.calls.Add(1)
	go q.run(ctx)
	return nil
}

// receive receives the body. fault is a reason to refuse the request, err one to end the session.
func (q *request) receive(n int) (fault, err error) {
	f, taken := q.framed, decoded*int64(n)
	if n > frames.MaxRequest {
		fault = fmt.Errorf("%w: a request of %d bytes, at most %d", errInvalid, n, frames.MaxRequest)
	} else {
		fault = f.one.user.reserve(taken)
	}
	if fault != nil {
		f.server.opts.Refusals.add(boundCallBytes)
		if _, err = f.in.Discard(n); err != nil {
			return nil, fmt.Errorf("receive a request: %w", err)
		}
		return fault, nil
	}
	q.taken = taken
	if q.body, err = f.bytes(n); err == nil && n <= frameBuffer {
		q.body = bytes.Clone(q.body)
		_, err = f.in.Discard(n)
	}
	if err != nil {
		return nil, fmt.Errorf("receive a request: %w", err)
	}
	return nil, nil
}

// run executes a request and answers it. A failure to send ends the session.
func (q *request) run(ctx context.Context) {
	f := q.framed
	q.begun = time.Now()
	defer f.one.calls.Done()
	defer func() {
		f.one.user.memory.Release(q.taken)
		f.mu.Lock()
		f.active--
		f.mu.Unlock()
	}()
	defer f.contain()
	sol, err := q.solve(ctx)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", hetero.ErrInterrupted, err)
	}
	q.record(sol.listed, err)
	switch {
	case err != nil && sol.end != nil:
		sol.end()
	case err != nil:
	case sol.end != nil:
		err = q.send(frames.KindPart, sol.value, sol.files)
		adminapi.CloseAll(sol.files)
		if err == nil {
			<-ctx.Done()
		}
		sol.end()
	case sol.value != nil:
		f.finish(q.id, false) // before the client has the answer
		err = q.send(frames.KindReply, sol.value, sol.files)
		adminapi.CloseAll(sol.files)
		if err != nil {
			_ = q.refuse(err)
		}
		return
	}
	f.finish(q.id, false)
	if err != nil {
		_ = q.refuse(err)
		return
	}
	_ = f.send(frames.Begin(nil, frames.KindLast, 0, q.id))
}

// record counts the request, the first time that it is called: before the client has an answer. listed is the number of keys in it.
func (q *request) record(listed int, err error) {
	if !q.recorded {
		q.recorded = true
		q.framed.server.opts.Calls.recordRequest(q.framed.conn.peer, q.verb, listed, q.begun, err)
	}
}

// solve computes the answer. The descriptors received are closed when it returns: that of the file keeps the mount busy.
func (q *request) solve(ctx context.Context) (solution, error) {
	files, err := q.received()
	defer func() { adminapi.CloseAll(files) }()
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return solution{}, err
	}
	read := func(into any) error { return adminapi.Unmarshal(q.body, into) }
	s, one := q.framed.server, q.framed.one
	if solve := s.solvers[q.verb]; solve != nil {
		return solve(ctx, &question{peer: q.framed.conn.peer, one: one, received: files, framed: true}, read)
	}
	if err = tooMany(files); err != nil {
		return solution{}, err
	}
	switch q.verb {
	case frames.RequestKeys:
		return q.keys(ctx, read)
	case frames.RequestWatch:
		var none struct{}
		if err = read(&none); err != nil {
			return solution{}, err
		}
		return solution{}, q.watch(ctx)
	default:
		return solution{}, fmt.Errorf("%w: unknown request %d", hetero.ErrUnsupported, q.verb)
	}
}

// received receives the announced descriptors, also for a request that is refused or was cancelled.
func (q *request) received() ([]*os.File, error) {
	f := q.framed
	if q.descriptors == 0 {
		return nil, nil
	}
	if q.after != nil {
		<-q.after // it does not wait for the client
	}
	defer close(q.passed)
	if err := f.life.Err(); err != nil {
		return nil, err // those of a session that has ended are closed with its channel
	}
	files, err := f.channel.Receive(q.id, q.descriptors, f.server.opts.Guard, uint32(f.conn.peer.UID))
	return files, filesOpen(err)
}

// send sends an answer, and its descriptors before it.
func (q *request) send(kind frames.Kind, value any, files []*os.File) error {
	f := q.framed
	text, err := json.Marshal(value)
	if err == nil && len(files) > 0 {
		f.replying.Lock()
		defer f.replying.Unlock()
		err = f.channel.Send(q.id, files)
	}
	if err != nil {
		return err
	}
	b := append(frames.BeginReply(nil, kind, len(files), q.id), text...)
	if err = frames.Finish(b, 0); err != nil {
		return err
	}
	return f.send(b)
}

// refuse ends the answer with an error.
func (q *request) refuse(fault error) error {
	return (&frameSink{framed: q.framed, id: q.id}).refuse(fault)
}

// errPage reports that a page of a list is full.
var errPage = errors.New("the page is full")

// keys returns one page of the list of keys.
func (q *request) keys(ctx context.Context, read func(any) error) (solution, error) {
	var asked adminapi.KeysRequest
	if err := read(&asked); err != nil {
		return solution{}, err
	}
	if err := q.framed.one.user.reserve(2 * pageBytes); err != nil {
		q.framed.server.opts.Refusals.add(boundCallBytes)
		return solution{}, err
	}
	q.taken += 2 * pageBytes // the page and its text
	out, size := adminapi.KeysAnswer{Keys: []adminapi.Key{}}, 0
	err := q.framed.server.opts.Keyed.Keys(ctx, callerOf(q.framed.conn.peer), asked, func(k adminapi.Key) error {
		if size >= pageBytes {
			return errPage
		}
		out.Keys = append(out.Keys, k)
		size += keyBytes + len(k.Key) + blobBytes*len(k.Blobs)
		return nil
	})
	if out.More = errors.Is(err, errPage); out.More {
		err = nil
	}
	return solution{value: out, listed: len(out.Keys)}, err
}

const (
	// pageBytes bounds a page of a list, and the events in one answer, in bytes, but for the last entry. keyBytes, blobBytes and
	// eventBytes estimate their parts.
	pageBytes, keyBytes, blobBytes, eventBytes = 256 << 10, 128, 8, 192
)

// watch sends events until the request is cancelled: each time that the client asks for more, those that there are, or the next
// one. Meanwhile the queue keeps them, up to its bound.
func (q *request) watch(ctx context.Context) error {
	f := q.framed
	leave, err := f.server.sessions.listen(f.conn)
	if err != nil {
		return err
	}
	defer leave()
	more := make(chan struct{}, 1)
	f.mu.Lock()
	f.watches[q.id] = more
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watches, q.id)
		f.mu.Unlock()
	}()
	queue := f.server.opts.Keyed.Listen(callerOf(f.conn.peer))
	defer queue.Close()
	q.record(0, nil)
	for batch := []objects.Event{}; err == nil; {
		if err = q.send(frames.KindPart, map[string][]objects.Event{"events": batch}, nil); err != nil {
			return err
		}
		select {
		case <-more:
			batch, err = batchOf(ctx, queue, batch[:0])
		case <-ctx.Done():
			return nil
		}
	}
	return nil // ended by either side
}

// batchOf waits for the next event, and returns it with those that are there already.
func batchOf(ctx context.Context, queue EventQueue, batch []objects.Event) ([]objects.Event, error) {
	e, err := queue.Next(ctx)
	now, cancel := context.WithCancel(ctx)
	cancel()
	for failed := err; failed == nil; e, failed = queue.Next(now) {
		if batch = append(batch, e); len(batch) >= pageBytes/eventBytes {
			break
		}
	}
	return batch, err
}

// more lets a stream send its next events.
func (f *framed) more(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.watches[id] <- struct{}{}:
	default: // it was asked for already, or has ended
	}
}
