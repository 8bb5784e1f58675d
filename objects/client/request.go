package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// errReplaced reports that the daemon of a request has died: no later one has it.
var errReplaced = fmt.Errorf("%w: the daemon has died", hetero.ErrDisconnected)

// errAnswer reports that the daemon's answer has an unexpected form.
var errAnswer = errors.New("the daemon's answer lacks the requested data")

// begin makes a request, with descriptors, which remain the caller's, and returns its first answer, whose descriptors become the
// caller's. The caller must end the request if err is nil. In a session that continues it is not asked again: it fails with
// errReplaced.
//
// Errors: an *Error with the daemon's text.
func (s *Session) begin(ctx context.Context, verb frames.RequestVerb, question any, files []*os.File) (*answer, part, error) {
	text, err := json.Marshal(question)
	switch {
	case err != nil:
	case len(text) > frames.MaxRequest:
		err = fmt.Errorf("%w: a request of %d bytes, the maximum is %d", frames.ErrFrame, len(text), frames.MaxRequest)
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = s.ended()
	}
	if err != nil {
		return nil, part{}, err
	}
	a := &answer{session: s, came: make(chan struct{}, 1), ctx: ctx, alone: true, once: true}
	if err = s.start(a); err != nil {
		return nil, part{}, err
	}
	if err = s.sendRequest(a, verb, text, files); err != nil {
		s.forget(a)
		return nil, part{}, err
	}
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, a.cancel)
	}
	p, err := a.next()
	switch {
	case err != nil:
		err = a.why(err)
	case p.kind == frames.KindFailure:
		err = failedWith(p.body)
	case p.kind != frames.KindReply && p.kind != frames.KindPart:
		err = errAnswer
	case p.lost != nil:
		err = fmt.Errorf("%w; this process's limit of open files may be too low", p.lost)
	}
	if err != nil {
		adminapi.CloseAll(p.files)
		a.end()
		return nil, part{}, err
	}
	return a, p, nil
}

// failedWith returns the error of a frame.
func failedWith(body []byte) error {
	f, err := frames.ParseFailure(body)
	if err != nil {
		return err
	}
	return &Error{Text: f.Text, Code: f.Code}
}

// sendRequest sends a request, and its descriptors before it.
func (s *Session) sendRequest(a *answer, verb frames.RequestVerb, text []byte, files []*os.File) error {
	frame, err := requestOf(a.id, verb, text, files)
	if err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	if len(files) > 0 && !s.cut {
		// A daemon that has ended is noticed by those who read.
		if err = s.link.Load().Descriptors.Send(a.id, files); err != nil && !isClosed(err) {
			return err
		}
	}
	s.writeLocked(frame)
	a.sent = true
	return nil
}

// requestOf returns the frame of a request.
func requestOf(id uint64, verb frames.RequestVerb, text []byte, files []*os.File) ([]byte, error) {
	if len(files) > frames.MaxDescriptors {
		return nil, fmt.Errorf("%w: %d descriptors, the maximum is %d", frames.ErrFrame, len(files), frames.MaxDescriptors)
	}
	frame := append(frames.BeginRequest(nil, verb, len(files), id), text...)
	return frame, frames.Finish(frame, 0)
}

// request makes a request that is over with its answer, which has no descriptors and is decoded into a value.
func (s *Session) request(ctx context.Context, verb frames.RequestVerb, question any, files []*os.File, into any) error {
	a, p, err := s.begin(ctx, verb, question, files)
	if err != nil {
		return err
	}
	defer a.end()
	return p.decode(into)
}

// decode decodes an answer without descriptors.
func (p part) decode(into any) error {
	if len(p.files) > 0 {
		adminapi.CloseAll(p.files)
		return errAnswer
	}
	if err := json.Unmarshal(p.body, into); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	return nil
}

// hold makes a request outlast those who wait for it: the session does not wait for its end, which the caller makes by release.
func (a *answer) hold() {
	a.unwatch()
	a.session.calls.Done()
}

// release ends a request that was held, and returns when the daemon has released what belonged to it.
func (a *answer) release() {
	late := time.AfterFunc(leaveLimit, func() { a.fail(errLate) })
	defer late.Stop()
	a.leave()
	for !a.over {
		p, err := a.next()
		if err != nil {
			break // the daemon has ended, and it with it
		}
		adminapi.CloseAll(p.files)
	}
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	delete(a.session.answers, a.id)
}

// more asks for the next part of the answer.
func (a *answer) more() {
	s := a.session
	s.sending.Lock()
	defer s.sending.Unlock()
	s.writeLocked(frames.Begin(nil, frames.KindMore, 0, a.id))
}

// alone opens a session for one purpose, which ends with its daemon. continues is the time within which another one comes; 0 if
// none does.
func (c *Client) alone(ctx context.Context) (s *Session, continues time.Duration, err error) {
	hello, err := c.greeted(ctx, "")
	if err != nil {
		return nil, 0, errors.Join(ctx.Err(), err)
	}
	continues, hello.continues = hello.continues, 0
	return c.newSession(ctx, hello), continues, nil
}

// abandon ends a session without waiting for the daemon.
func (s *Session) abandon() {
	s.link.Load().Shut(syscall.SHUT_RDWR)
	_ = s.Close() // it never fails
}

// asked opens a session, calls do, and ends the session. See opened.
func (c *Client) asked(ctx context.Context, do func(*Session) error) error {
	var s *Session
	err := c.opened(ctx, func(one *Session) error {
		s = one
		return do(s)
	})
	if err == nil {
		_ = s.Close() // it never fails
	}
	return err
}

// opened opens a session and calls do, which owns it if it returns nil. If the daemon dies meanwhile and its holder starts it again,
// that is done again with the next one, unless the error is a lastError.
func (c *Client) opened(ctx context.Context, do func(*Session) error) error {
	greeted := false
	var died error // of a daemon that was asked
	err := c.Revived(ctx, func(ctx context.Context) error {
		s, _, err := c.alone(ctx)
		if greeted = err == nil; !greeted {
			return err
		}
		// The end of the context ends it, whatever the daemon does.
		stop := context.AfterFunc(ctx, s.abandon)
		if err = do(s); err != nil {
			_ = s.Close() // it never fails
		}
		if !stop() {
			err = errors.Join(ctx.Err(), err)
		}
		died = c.explainAsked(err)
		return died
	})
	switch {
	case err == nil || greeted:
		return err
	case died != nil: // which says that it may have done it
		return errors.Join(ctx.Err(), died)
	}
	return c.explainShare(err)
}

// lastError is an error of what must not be done again with another daemon.
type lastError struct{ error }

// Unwrap returns the error.
func (e lastError) Unwrap() error { return e.error }

// explainAsked returns the error of a request of a session that was opened for it.
func (c *Client) explainAsked(err error) error {
	if errors.Is(err, hetero.ErrDisconnected) {
		return fmt.Errorf("the daemon at %s ended before it answered: %w: %w", c.socket, ErrNoDaemon, err)
	}
	return err
}

// isClosed reports whether a connection was closed by the other side.
func isClosed(err error) bool {
	closed := []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrUnexpectedEOF, io.EOF}
	return slices.ContainsFunc(closed, func(one error) bool { return errors.Is(err, one) })
}

// explainShare returns an error text for a failure to reach the daemon.
func (c *Client) explainShare(err error) error {
	switch {
	case errors.Is(err, syscall.EACCES):
		return &Error{
			Status: http.StatusForbidden, Code: adminapi.CodeForbidden,
			Text: fmt.Sprintf("%s can't be reached by this user; give others access with hmcfs mount --allow-other, or use the attributes user.hmc.bind and user.hmc.handle", c.socket),
		}
	case isClosed(err):
		return fmt.Errorf("request to the daemon at %s: it closed the connection; this user may have too many connections open: %w", c.socket, err)
	}
	if _, said := errors.AsType[*Error](err); said {
		return err
	}
	return c.explain(err)
}
