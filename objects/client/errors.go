package client

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// failureOf returns the error that a frame has; nil for an empty body.
func (s *Session) failureOf(body []byte) error {
	f, err := frames.ParseFailure(body)
	if err != nil {
		return fmt.Errorf("%w: %w", hetero.ErrIO, err)
	}
	return s.errorOf(f.Code, f.Text)
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
	return &daemonError{text: text, is: is, ends: code == adminapi.CodeNoSession || code == adminapi.CodeEnding}
}

// daemonError is an error with the daemon's text.
type daemonError struct {
	text string
	is   error
	// ends is set if the daemon is ending, or knows nothing of the session.
	ends bool
}

// IsAnswer reports whether the daemon has answered with an error, unless that it is ending.
func IsAnswer(err error) bool {
	e, is := errors.AsType[*daemonError](err)
	return is && !e.ends
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
