package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Watch is a stream of the events of a mount's keys. Its methods may be called from any
// goroutine.
type Watch struct {
	wire   *wire
	events chan adminapi.Event
	// over is closed by Close, and ended when there are no more events.
	over, ended chan struct{}
}

// Watch starts a stream of the events of keys from now on. The daemon buffers events that have
// not been read yet, up to a bound: beyond it the oldest are dropped, and an event of kind
// "dropped" has their number. The caller must close the Watch.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized.
func (c *Client) Watch(ctx context.Context) (*Watch, error) {
	w, lines, err := c.lines(ctx, http.MethodGet, adminapi.PathEvents, nil)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	watch := &Watch{
		wire: w, events: make(chan adminapi.Event), over: make(chan struct{}), ended: make(chan struct{}),
	}
	go watch.read(lines)
	return watch, nil
}

// lines requests lines, which last as long as the connection, and decodes the first one into first if that is not nil. The caller owns the
// connection and sets its deadlines.
func (c *Client) lines(ctx context.Context, method, path string, first any) (*wire, *json.Decoder, error) {
	w, err := c.dial(ctx)
	if err != nil {
		return nil, nil, c.heteroError(err)
	}
	stop := context.AfterFunc(ctx, w.cut)
	var lines *json.Decoder
	resp, err := w.request(method, path, "", nil)
	if err == nil {
		lines = json.NewDecoder(resp.Body)
		if first != nil {
			err = lines.Decode(first)
		}
	}
	if !stop() {
		err = errors.Join(hetero.ContextError(ctx.Err()), err)
	}
	if err != nil {
		_ = w.conn.Close() // the failure is returned
		return nil, nil, c.heteroError(err)
	}
	return w, lines, nil
}

func (w *Watch) read(lines *json.Decoder) {
	defer close(w.ended)
	for {
		var e adminapi.Event
		if lines.Decode(&e) != nil {
			return
		}
		select {
		case w.events <- e:
		case <-w.over:
			return
		}
	}
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
	close(w.over)
	err := w.wire.conn.Close()
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
	w, lines, err := c.lines(ctx, http.MethodGet, adminapi.PathKeys+"?"+query.Encode(), nil)
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
