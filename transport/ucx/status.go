package ucx

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// What callers tell apart.
var (
	// ErrNoDevice says that none of the transports that were asked for has a
	// device on this machine.
	ErrNoDevice = errors.New("ucx: no device")
	// ErrOffer says that a peer has sent what no ucx of ours has made.
	ErrOffer = errors.New("ucx: bad offer")
	// ErrPeer says that the peer can't be reached any more.
	ErrPeer = errors.New("ucx: peer lost")
)

// Status is a ucs_status_t: negative is a failure. As an error it has the
// library's own text.
type Status int8

// failed says whether it is one of the library's errors.
func (s Status) failed() bool { return s < 0 }

// StatusError is a call of the library that has failed.
type StatusError struct {
	// Call is the function.
	Call   string
	Status Status
	// Text is the library's own.
	Text string
}

// Error names the call and the library's reason.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, int(e.Status))
}

// check makes an error of a status that is a failure.
func (a *api) check(call string, s Status) error {
	if !s.failed() {
		return nil
	}
	return &StatusError{Call: call, Status: s, Text: dl.String(a.StatusString.Call(uintptr(s)))}
}

// statusOf is the status in a word that a C function has returned: the type
// is one byte wide, and the other bits mean nothing.
func statusOf(word uintptr) Status { return Status(int8(word)) }

// under says whether the library still works at the request.
func (r request) under() bool { return r != 0 && (int64(r) < firstError || int64(r) > 0) }

// status is that of a request which is not under way.
func (r request) status() Status { return statusOf(uintptr(r)) }
