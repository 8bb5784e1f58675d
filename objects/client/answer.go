package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// answer is one call in progress. It must not be used concurrently.
type answer struct {
	session *Session
	wire    *wire
	resp    *http.Response
	lines   *json.Decoder
	keys    []string
	// stop ends the watch on the call's context.
	stop func() bool
	// why returns the error of keys for which no line arrived.
	why func(error) error
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
	body, err := json.Marshal(q)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	case len(body) > adminapi.MaxCall:
		return nil, false, fmt.Errorf("%w: the call has %d bytes, the maximum is %d", hetero.ErrInvalid, len(body), adminapi.MaxCall)
	}
	w, err := s.take(ctx)
	if err != nil {
		return nil, false, err
	}
	a = &answer{session: s, wire: w, keys: slices.Clone(q.Keys), stop: context.AfterFunc(ctx, w.leave)}
	a.why = func(cause error) error { return s.broken(ctx, cause) }
	a.resp, err = w.request(http.MethodPost, adminapi.PathCall+string(verb), s.id, body)
	if err != nil {
		said, refused := errors.AsType[*Error](err)
		whole := a.stop()
		s.put(w, false)
		if refused {
			return nil, false, s.errorOf(said.Code, said.Text)
		}
		if !whole {
			err = errors.Join(hetero.ContextError(ctx.Err()), err)
		}
		return nil, true, a.why(err)
	}
	a.lines = json.NewDecoder(a.resp.Body)
	return a, true, nil
}

// end ends the use of the connection, which can be used for another call if the answer was
// read completely.
func (a *answer) end(whole bool) {
	wanted := a.stop()
	_ = a.resp.Body.Close() // it has been read, or is not needed
	a.session.put(a.wire, whole && wanted && !a.resp.Close)
}

// each passes the lines of keys to line, up to a line without a key, or to the end. begun is
// true if there was such a line; err is its error, or that of the connection.
func (a *answer) each(line func(adminapi.Line)) (begun bool, err error) {
	for {
		var l adminapi.Line
		if err = a.lines.Decode(&l); err != nil {
			return false, err
		}
		switch {
		case l.Begun:
			return true, a.session.errorOf(l.Code, l.Error)
		case l.N < 0 || l.N >= len(a.keys):
			return false, errAnswer
		}
		line(l)
	}
}

// errorOf returns an error of the daemon with its code and text; nil for an empty code.
func (s *Session) errorOf(code, text string) error {
	if code == "" {
		return nil
	}
	is := sentinelOf(code)
	switch closed := s.isClosed(); {
	case code == adminapi.CodeNoSession && closed:
		is = hetero.ErrClosed // the call reached the daemon after our Close
	case errors.Is(is, hetero.ErrClosed) && !closed:
		is = hetero.ErrDisconnected // the daemon is ending
	}
	return &daemonError{text: text, is: is}
}

// daemonError is an error with the daemon's text.
type daemonError struct {
	text string
	is   error
}

// Error returns the daemon's text.
func (e *daemonError) Error() string { return e.text }

// Unwrap returns the sentinel for the error's code.
func (e *daemonError) Unwrap() error { return e.is }

// sentinelOf returns the error for a code: one of a hetero.Status, or of an adminapi.Error.
func sentinelOf(code string) error {
	for _, s := range hetero.Statuses() {
		if s.Name == code {
			return s.Err
		}
	}
	switch code {
	case adminapi.CodeForbidden:
		return hetero.ErrNotAuthorized
	case adminapi.CodeEnding, adminapi.CodeNoSession:
		return hetero.ErrDisconnected
	}
	return hetero.ErrIO
}

// heteroError converts an error of reaching the daemon to one of hetero.
func (c *Client) heteroError(err error) error {
	err = c.explain(err)
	if said, ok := errors.AsType[*Error](err); ok {
		return &daemonError{text: said.Text, is: sentinelOf(said.Code)}
	}
	return err
}

// settling bounds the wait that determines whether the end of a connection is the end of the
// daemon.
const settling = time.Second

// broken returns the error of a call that got no answer.
func (s *Session) broken(ctx context.Context, cause error) error {
	if err := s.ended(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", hetero.ContextError(ctx.Err()), cause)
	}
	if errors.Is(cause, errAnswer) {
		return fmt.Errorf("%w: %w", hetero.ErrIO, cause)
	}
	select {
	case <-s.gone:
		return s.ended()
	case <-time.After(settling):
	}
	// The session still exists, and this connection does not: the daemon closes the
	// connections of a user that has too many.
	return fmt.Errorf("%w: the daemon closed the connection: %w", hetero.ErrBusy, cause)
}
