package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Watch is a stream of the events of a mount's keys. Its methods may be called from any
// goroutine.
type Watch struct {
	client *Client
	events chan adminapi.Event
	// quit ends the context of run; ended is closed when there are no more events.
	quit  context.CancelFunc
	ended chan struct{}

	mu sync.Mutex
	// session is that of the stream alone.
	// +checklocks:mu
	session *Session
	// +checklocks:mu
	closed bool
}

// Watch starts a stream of the events of keys from now on. The daemon buffers events that have
// not been read yet, up to a bound: beyond it the oldest are dropped, and an event of kind
// "dropped" has their number. If a holder starts a daemon again that has died, the stream continues with an
// event of kind "dropped" whose number is 0: there may have been events meanwhile. The caller must close the
// Watch.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized.
func (c *Client) Watch(ctx context.Context) (*Watch, error) {
	var stream *answer
	var continues time.Duration
	err := c.Revived(ctx, func(ctx context.Context) (err error) {
		stream, continues, err = c.stream(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", c.heteroError(err))
	}
	watch := &Watch{client: c, session: stream.session, events: make(chan adminapi.Event), ended: make(chan struct{})}
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	watch.quit = quit
	go watch.run(life, stream, continues)
	return watch, nil
}

// stream requests events, in a session of its own. continues is the time within which another daemon comes; 0 if none does.
func (c *Client) stream(ctx context.Context) (a *answer, continues time.Duration, err error) {
	s, continues, err := c.alone(ctx)
	if err != nil {
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, s.abandon)
	a, p, err := s.begin(ctx, frames.RequestWatch, struct{}{}, nil)
	var none adminapi.EventsAnswer
	if err == nil {
		a.hold()
		err = p.decode(&none)
	}
	if !stop() {
		err = errors.Join(hetero.ContextError(ctx.Err()), err)
	}
	if err != nil {
		s.abandon()
		return nil, 0, err
	}
	return a, continues, nil
}

// run passes on events until there are no more.
func (w *Watch) run(ctx context.Context, stream *answer, continues time.Duration) {
	defer close(w.ended)
	for w.read(ctx, stream) && continues > 0 {
		next, err := w.again(ctx, continues)
		if err != nil || !w.pass(ctx, adminapi.Event{Kind: adminapi.EventDropped, Time: time.Now().UTC().Format(time.RFC3339Nano)}) {
			return
		}
		stream = next
	}
}

// read passes on events until the session ends. It returns false if that is due to Close.
func (w *Watch) read(ctx context.Context, stream *answer) bool {
	for {
		stream.more()
		var some adminapi.EventsAnswer
		p, err := stream.next()
		if err != nil || p.kind != frames.KindPart || p.decode(&some) != nil {
			return !w.isClosed()
		}
		for _, e := range some.Events {
			if !w.pass(ctx, e) {
				return false
			}
		}
	}
}

// pass passes on an event. It returns false after Close.
func (w *Watch) pass(ctx context.Context, e adminapi.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// again requests the events from the next daemon.
func (w *Watch) again(ctx context.Context, limit time.Duration) (stream *answer, err error) {
	err = w.client.retry(ctx, limit, func(ctx context.Context) error {
		next, _, failure := w.client.stream(ctx)
		if failure != nil {
			return failure
		}
		w.mu.Lock()
		old, closed := w.session, w.closed
		w.session, stream = next.session, next
		w.mu.Unlock()
		old.abandon() // it has ended
		if closed {
			next.session.abandon()
		}
		return nil
	})
	return stream, err
}

func (w *Watch) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Next waits for the next event.
//
// Errors: hetero.ErrInterrupted or ErrTimeout when the context ends;
// hetero.ErrDisconnected when the daemon has ended, or Close was called.
func (w *Watch) Next(ctx context.Context) (adminapi.Event, error) {
	select {
	case e := <-w.events:
		return e, nil
	case <-w.ended:
		return adminapi.Event{}, fmt.Errorf("watch: %w", hetero.ErrDisconnected)
	case <-ctx.Done():
		return adminapi.Event{}, fmt.Errorf("watch: %w", hetero.ContextError(ctx.Err()))
	}
}

// Close ends the stream. It must be called once.
func (w *Watch) Close() error {
	w.quit()
	w.mu.Lock()
	w.closed = true
	s := w.session
	w.mu.Unlock()
	s.abandon()
	<-w.ended
	return nil
}

// Keys lists the keys that begin with a prefix, in order; with published set, those of
// publications.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized.
func (c *Client) Keys(ctx context.Context, prefix string, published bool) ([]adminapi.Key, error) {
	var keys []adminapi.Key
	err := c.Revived(ctx, func(ctx context.Context) error {
		s, _, err := c.alone(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, s.abandon)
		keys, err = s.keys(ctx, adminapi.KeysRequest{Prefix: prefix, Published: published})
		if stop() {
			_ = s.Close() // it never fails
		} else {
			err = errors.Join(hetero.ContextError(ctx.Err()), err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", c.heteroError(err))
	}
	return keys, nil
}

// keys lists keys, page by page.
func (s *Session) keys(ctx context.Context, q adminapi.KeysRequest) (keys []adminapi.Key, err error) {
	for page := (adminapi.KeysAnswer{More: true}); page.More; q.After = keys[len(keys)-1].Key {
		page = adminapi.KeysAnswer{}
		if err = s.request(ctx, frames.RequestKeys, q, nil, &page); err != nil {
			return nil, err
		}
		if keys = append(keys, page.Keys...); len(page.Keys) == 0 {
			break
		}
	}
	return keys, nil
}
