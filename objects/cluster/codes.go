package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// errNoHello reports a request before Hello in its session; the requester repeats the Hello.
var errNoHello = errors.New("cluster: no hello in this session")

// codeRule maps an error to the code it is sent as.
type codeRule struct {
	err  error
	code rpc.Code
}

// codeRules returns the whole mapping, in order: the first error that matches decides, as with
// errnos, so that an error has the same errno on either side. The codes are part of the protocol
// (docs/wire.md), so a number is never reused.
func codeRules() []codeRule {
	return []codeRule{
		// A denial or a stale reference takes precedence, whatever else the error is.
		{ErrDenied, 0x83},
		{ErrStale, proto.CodeStale},
		{ErrVersion, 0x84},
		{errNoHello, proto.CodeNoHello},
		{ErrNoNode, 0x80},
		{ErrUnreachable, proto.CodeUnreachable},

		{context.Canceled, proto.CodeCanceled},
		{context.DeadlineExceeded, proto.CodeTimeout},

		{metadata.ErrNotExist, 0x20},
		{metadata.ErrExist, 0x21},
		{metadata.ErrNotDir, 0x22},
		{metadata.ErrIsDir, 0x23},
		{metadata.ErrNotEmpty, 0x24},
		{metadata.ErrNameTooLong, 0x25},
		{metadata.ErrInvalidName, 0x26},
		{metadata.ErrInvalid, 0x27},
		{metadata.ErrInvalidKey, 0x28},
		{metadata.ErrPermission, 0x29},
		{metadata.ErrCrossDevice, 0x2a},
		{metadata.ErrTooManyLinks, 0x2b},
		{metadata.ErrNoXattr, 0x2c},
		{metadata.ErrRange, 0x2d},
		{metadata.ErrFull, 0x2e},
		{metadata.ErrQuota, 0x36},
		{metadata.ErrXattrSpace, 0x37},
		{metadata.ErrNoSpace, 0x38},
		{metadata.ErrTooLarge, 0x2f},

		{devices.ErrOutOfMemory, 0x60},
		{objects.ErrLost, 0x40},
		{objects.ErrDamaged, 0x41},
		{objects.ErrUnsupported, 0x42},
		{objects.ErrReadOnly, 0x43},
		{objects.ErrInvalid, 0x44},
		{objects.ErrNoData, 0x45},
		{objects.ErrTooLarge, 0x46},
		{objects.ErrBusy, 0x47},
		{objects.ErrForbidden, 0x48},
		{objects.ErrInconsistent, 0x49},
		{objects.ErrWithdrawn, 0x4a},
		{objects.ErrClosed, 0x4b},

		{devices.ErrHandle, 0x61},
		{devices.ErrLost, 0x62},
		{devices.ErrClosed, 0x63},
		{devices.ErrNoDevice, 0x64},
		{devices.ErrForeign, 0x65},
		{devices.ErrRange, 0x66},
		{devices.ErrDevice, 0x67},
		{devices.ErrUnsupported, 0x68},

		{metadata.ErrNoKey, 0x30},
		{metadata.ErrReadOnly, 0x31},
		{metadata.ErrClosed, 0x32},
		{metadata.ErrChanged, 0x33},
		{metadata.ErrNewer, 0x34},
		{metadata.ErrCorrupt, 0x35},

		{proto.ErrBody, 0x90},
		{coord.ErrUnavailable, 0x91},
	}
}

// codes converts errors to codes and back. It is immutable.
type codes struct {
	rules  []codeRule
	byCode map[rpc.Code]error
}

func newCodes() *codes {
	c := &codes{rules: codeRules(), byCode: map[rpc.Code]error{
		rpc.CodeNoMethod: ErrVersion,
		rpc.CodeBusy:     ErrUnreachable,
		rpc.CodeClosing:  ErrUnreachable,
		// It is unknown whether the request was carried out before the deadline, on whichever
		// side that passed first.
		rpc.CodeDeadline: errors.Join(ErrUnreachable, context.DeadlineExceeded),
		proto.CodeShape:  &objects.ShapeError{},
	}}
	for _, r := range c.rules {
		c.byCode[r.code] = r.err
	}
	return c
}

// code returns the code of a local error: it is the rpc.Coder of the endpoint. It accepts any
// error; an unknown one is rpc.CodeUnknown.
func (c *codes) code(err error) rpc.Code {
	if _, shape := errors.AsType[*objects.ShapeError](err); shape {
		return proto.CodeShape
	}
	if errors.Is(err, control.ErrDisconnected) || errors.Is(err, comm.ErrNotConnected) {
		return proto.CodeUnreachable
	}
	for i := range c.rules {
		if errors.Is(err, c.rules[i].err) {
			return c.rules[i].code
		}
	}
	number, ok := errors.AsType[syscall.Errno](err)
	if last := proto.CodeErrnoLast - proto.CodeErrno; ok && number > 0 && number <= syscall.Errno(last) {
		return proto.CodeErrno + rpc.Code(number)
	}
	return rpc.CodeUnknown
}

// err returns the error of a code, or nil for an unknown code.
func (c *codes) err(code rpc.Code) error {
	if code > proto.CodeErrno && code <= proto.CodeErrnoLast {
		// The kernel accepts no others, and stops sending an operation on ENOSYS.
		number := syscall.Errno(code - proto.CodeErrno)
		if unix.ErrnoName(number) == "" || number == syscall.ENOSYS {
			return nil
		}
		return number
	}
	return c.byCode[code]
}

// remoteError is an error of another node. It has the text of the remote error, and unwraps to
// the local counterpart.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.is }

// shown returns a text of another node in a form that is safe for a log line or a terminal.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// received converts the error of a request to the errors that callers distinguish: the owner's
// error with its meaning there, or ErrUnreachable if there was no answer. Errors of the
// caller's own context and unknown errors are kept.
func (c *codes) received(node string, err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[*rpc.Error](err); ok {
		text := fmt.Sprintf("node %s: %s", node, shown(answer.Text))
		if is := c.err(answer.Code); is != nil {
			return &remoteError{text: text, is: is}
		}
		return errors.New(text)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if isAny(err,
		control.ErrDisconnected, comm.ErrNotConnected, comm.ErrClosed, context.DeadlineExceeded,
		control.ErrAuth, control.ErrSilent, control.ErrCover, control.ErrRefused, comm.ErrNoTransport,
	) {
		return fmt.Errorf("node %s: %w: %w", node, ErrUnreachable, err)
	}
	return fmt.Errorf("node %s: %w", node, err)
}

// isAny reports whether err matches one of some errors.
func isAny(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(one error) bool { return errors.Is(err, one) })
}
