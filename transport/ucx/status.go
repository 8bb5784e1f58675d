package ucx

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// Errors that callers distinguish.
var (
	// ErrNoDevice reports that none of the requested transports has a device on
	// this machine.
	ErrNoDevice = errors.New("ucx: no device")
	// ErrOffer reports data from a peer that this package has not made.
	ErrOffer = errors.New("ucx: invalid data from the peer")
	// ErrPeer reports that the peer can no longer be reached.
	ErrPeer = errors.New("ucx: peer lost")
)

// Status is a ucs_status_t: negative means failure. StatusError adds the
// library's text.
type Status int8

// failed reports whether it is one of the library's errors.
func (s Status) failed() bool { return s < 0 }

// StatusError reports a failed call of the library.
type StatusError struct {
	// Call is the name of the function.
	Call   string
	Status Status
	// Text is the library's description.
	Text string
}

// Error names the call and the library's reason.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, int(e.Status))
}

// check returns the error for a status that is a failure.
func (a *api) check(call string, s Status) error {
	if !s.failed() {
		return nil
	}
	return &StatusError{Call: call, Status: s, Text: dl.String(a.StatusString.Call(uintptr(s)))}
}

// statusOf returns the status in a word that a C function has returned: the type
// is one byte wide, and the other bits are undefined.
func statusOf(word uintptr) Status { return Status(int8(word)) }

// under reports whether the library still works on the request.
func (r request) under() bool { return r != 0 && (int64(r) < firstError || int64(r) > 0) }

// started returns a request that the library has started and its status, which is
// final if the request is 0.
func (r request) started() (request, Status) {
	if r.under() {
		return r, statusInProgress
	}
	return 0, statusOf(uintptr(r))
}
