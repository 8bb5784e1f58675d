package cluster

import (
	"context"
	"errors"
	"fmt"
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

// errNoHello is a question before Hello in its session: who asks says it again.
var errNoHello = errors.New("cluster: no hello in this session")

// codeRule says which code an error travels as.
type codeRule struct {
	err  error
	code rpc.Code
}

// codeRules is the whole mapping, in order: the first error that matches
// decides, as with errnos, so that an error has the same errno at either side.
func codeRules() []codeRule {
	return []codeRule{
		// Who was denied, or has something that is gone, is told so, whatever
		// else the error is.
		{ErrDenied, proto.CodeDenied},
		{ErrStale, proto.CodeStale},
		{ErrVersion, proto.CodeVersion},
		{errNoHello, proto.CodeNoHello},
		{ErrNoNode, proto.CodeNoNode},
		{ErrUnreachable, proto.CodeUnreachable},

		{context.Canceled, proto.CodeCanceled},
		{context.DeadlineExceeded, proto.CodeTimeout},

		{metadata.ErrNotExist, proto.CodeNotExist},
		{metadata.ErrExist, proto.CodeExist},
		{metadata.ErrNotDir, proto.CodeNotDir},
		{metadata.ErrIsDir, proto.CodeIsDir},
		{metadata.ErrNotEmpty, proto.CodeNotEmpty},
		{metadata.ErrNameTooLong, proto.CodeNameTooLong},
		{metadata.ErrInvalidName, proto.CodeInvalidName},
		{metadata.ErrInvalid, proto.CodeInvalid},
		{metadata.ErrInvalidKey, proto.CodeInvalidKey},
		{metadata.ErrPermission, proto.CodePermission},
		{metadata.ErrCrossDevice, proto.CodeCrossDevice},
		{metadata.ErrTooManyLinks, proto.CodeTooManyLinks},
		{metadata.ErrNoXattr, proto.CodeNoXattr},
		{metadata.ErrRange, proto.CodeXattrRange},
		{metadata.ErrFull, proto.CodeFull},
		{metadata.ErrQuota, proto.CodeQuota},
		{metadata.ErrXattrSpace, proto.CodeXattrSpace},
		{metadata.ErrNoSpace, proto.CodeNoSpace},
		{metadata.ErrTooLarge, proto.CodeTooLarge},

		{devices.ErrOutOfMemory, proto.CodeOutOfMemory},
		{objects.ErrLost, proto.CodeObjectLost},
		{objects.ErrDamaged, proto.CodeObjectDamaged},
		{objects.ErrUnsupported, proto.CodeObjectUnsupported},
		{objects.ErrReadOnly, proto.CodeAttrReadOnly},
		{objects.ErrInvalid, proto.CodeObjectInvalid},
		{objects.ErrNoData, proto.CodeNoData},
		{objects.ErrTooLarge, proto.CodeFileTooLarge},
		{objects.ErrBusy, proto.CodeBusy},
		{objects.ErrForbidden, proto.CodeForbidden},
		{objects.ErrInconsistent, proto.CodeInconsistent},
		{objects.ErrWithdrawn, proto.CodeWithdrawn},
		{objects.ErrClosed, proto.CodeStoreClosed},

		{devices.ErrHandle, proto.CodeDeviceHandle},
		{devices.ErrLost, proto.CodeDeviceLost},
		{devices.ErrClosed, proto.CodeDeviceClosed},
		{devices.ErrNoDevice, proto.CodeNoDevice},
		{devices.ErrForeign, proto.CodeDeviceForeign},
		{devices.ErrRange, proto.CodeDeviceRange},
		{devices.ErrDevice, proto.CodeDeviceFailure},
		{devices.ErrUnsupported, proto.CodeDeviceUnsupported},

		{metadata.ErrNoKey, proto.CodeNoRecord},
		{metadata.ErrReadOnly, proto.CodeRecordReadOnly},
		{metadata.ErrClosed, proto.CodeRecordsClosed},
		{metadata.ErrChanged, proto.CodeChanged},
		{metadata.ErrNewer, proto.CodeNewer},
		{metadata.ErrCorrupt, proto.CodeCorrupt},

		{proto.ErrBody, proto.CodeBody},
		{coord.ErrUnavailable, proto.CodeCoord},
	}
}

// codes turns errors into codes and back. It never changes.
type codes struct {
	rules  []codeRule
	byCode map[rpc.Code]error
}

func newCodes() *codes {
	c := &codes{rules: codeRules(), byCode: map[rpc.Code]error{
		rpc.CodeNoMethod: ErrVersion,
		rpc.CodeBusy:     ErrUnreachable,
		rpc.CodeClosing:  ErrUnreachable,
		// Whether it was done before the deadline is not known, wherever that
		// passed first.
		rpc.CodeDeadline: errors.Join(ErrUnreachable, context.DeadlineExceeded),
		proto.CodeShape:  &objects.ShapeError{},
	}}
	for _, r := range c.rules {
		c.byCode[r.code] = r.err
	}
	return c
}

// code returns the code of an error of ours: it is the rpc.Coder of the endpoint. It
// is total; what nothing is known of is rpc.CodeUnknown.
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

// err returns the error of a code; nil for one that means nothing here.
func (c *codes) err(code rpc.Code) error {
	if code > proto.CodeErrno && code <= proto.CodeErrnoLast {
		// The kernel takes no others, and gives an operation up on ENOSYS.
		number := syscall.Errno(code - proto.CodeErrno)
		if unix.ErrnoName(number) == "" || number == syscall.ENOSYS {
			return nil
		}
		return number
	}
	return c.byCode[code]
}

// remoteError is an error of another node. It reads as there and is here what
// it was there.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.is }

// shown is a text of another node as it goes into a line of a log, or to a
// terminal.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// received turns what a call of ours has failed with into what our callers
// tell apart: the owner's error as it was there, or ErrUnreachable where there
// was no answer. Errors of the caller's own context stay, and those that
// nothing is known of.
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
	for _, gone := range []error{
		control.ErrDisconnected, comm.ErrNotConnected, comm.ErrClosed, context.DeadlineExceeded,
		control.ErrAuth, control.ErrSilent, control.ErrCover, control.ErrRefused, comm.ErrNoTransport,
	} {
		if errors.Is(err, gone) {
			return fmt.Errorf("node %s: %w: %w", node, ErrUnreachable, err)
		}
	}
	return fmt.Errorf("node %s: %w", node, err)
}
