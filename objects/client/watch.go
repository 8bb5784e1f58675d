package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
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
	// +checklocks:mu
	wire *wire
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
	w, lines, err := c.lines(ctx, adminapi.PathEvents)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	watch := &Watch{client: c, wire: w, events: make(chan adminapi.Event), ended: make(chan struct{})}
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	watch.quit = quit
	go watch.run(life, lines, w.continues)
	return watch, nil
}

// lines requests lines. The caller owns the connection and sets its deadlines.
func (c *Client) lines(ctx context.Context, path string) (*wire, *json.Decoder, error) {
	w, err := c.dial(ctx)
	if err != nil {
		return nil, nil, c.heteroError(err)
	}
	stop := context.AfterFunc(ctx, w.cut)
	lines, err := w.stream(path)
	if !stop() {
		err = errors.Join(hetero.ContextError(ctx.Err()), err)
	}
	if err != nil {
		_ = w.conn.Close() // the failure is returned
		return nil, nil, c.heteroError(err)
	}
	return w, lines, nil
}

// run passes on events until there are no more.
func (w *Watch) run(ctx context.Context, lines *json.Decoder, continues time.Duration) {
	defer close(w.ended)
	for w.read(ctx, lines) && continues > 0 {
		next, err := w.again(ctx, continues)
		if err != nil || !w.pass(ctx, adminapi.Event{Kind: adminapi.EventDropped, Time: time.Now().UTC().Format(time.RFC3339Nano)}) {
			return
		}
		lines = next
	}
}

// read passes on events until the connection ends. It returns false if that is due to Close.
func (w *Watch) read(ctx context.Context, lines *json.Decoder) bool {
	for {
		var e adminapi.Event
		if lines.Decode(&e) != nil {
			return !w.isClosed()
		}
		if !w.pass(ctx, e) {
			return false
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
func (w *Watch) again(ctx context.Context, limit time.Duration) (lines *json.Decoder, err error) {
	err = w.client.retry(ctx, limit, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, w.client.patience)
		defer cancel()
		next, found, failure := w.client.lines(ctx, adminapi.PathEvents)
		if failure != nil {
			return failure
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = w.wire.conn.Close() // it has ended
		w.wire, lines = next, found
		if w.closed {
			return next.conn.Close()
		}
		return nil
	})
	return lines, err
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
	err := w.wire.conn.Close()
	w.mu.Unlock()
	<-w.ended
	if err != nil {
		return fmt.Errorf("end a watch: %w", err)
	}
	return nil
}

// Keys lists the keys that begin with a prefix, in order; with published set, those of
// publications.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized.
func (c *Client) Keys(ctx context.Context, prefix string, published bool) ([]adminapi.Key, error) {
	query := url.Values{"prefix": {prefix}}
	if published {
		query.Set("published", "1")
	}
	w, lines, err := c.lines(ctx, adminapi.PathKeys+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	defer func() { _ = w.conn.Close() }() // it has been read
	defer context.AfterFunc(ctx, w.cut)()
	var keys []adminapi.Key
	for {
		var k adminapi.Key
		switch err := lines.Decode(&k); {
		case errors.Is(err, io.EOF):
			return keys, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("list keys: %w", hetero.ContextError(ctx.Err()))
		case err != nil:
			return nil, fmt.Errorf("list keys: %w: %w", hetero.ErrDisconnected, err)
		}
		keys = append(keys, k)
	}
}
