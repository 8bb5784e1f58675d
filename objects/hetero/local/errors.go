package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// errorRule maps an error of the store to one of hetero's.
type errorRule struct{ from, to error }

// errorRules returns the whole mapping, in order: the first match decides, and an error
// without a match is ErrIO.
func errorRules() []errorRule {
	return []errorRule{
		// These come first: if a node did not answer in time they wrap DeadlineExceeded.
		{cluster.ErrUnreachable, hetero.ErrDisconnected},
		{cluster.ErrVersion, hetero.ErrDisconnected},
		{cluster.ErrDenied, hetero.ErrNotAuthorized},
		{cluster.ErrStale, hetero.ErrLost},
		{syscall.EROFS, hetero.ErrReadOnly}, // of another node
		{syscall.EMFILE, hetero.ErrBusy},
		{syscall.ENFILE, hetero.ErrBusy},

		{context.DeadlineExceeded, hetero.ErrTimeout},
		{context.Canceled, hetero.ErrInterrupted},

		{objects.ErrForbidden, hetero.ErrNotAuthorized},
		{objects.ErrInconsistent, hetero.ErrInconsistent},
		{objects.ErrWithdrawn, hetero.ErrWithdrawn},
		{objects.ErrBusy, hetero.ErrBusy},
		{objects.ErrClosed, hetero.ErrClosed},
		{objects.ErrLost, hetero.ErrLost},
		{objects.ErrUnsupported, hetero.ErrUnsupported},
		{objects.ErrInvalid, hetero.ErrInvalid},
		{objects.ErrTooLarge, hetero.ErrNoMemory},

		{metadata.ErrNotExist, hetero.ErrNotFound},
		{metadata.ErrExist, hetero.ErrExist},
		{metadata.ErrPermission, hetero.ErrNotAuthorized},
		{metadata.ErrInvalidKey, hetero.ErrInvalid},
		{metadata.ErrInvalid, hetero.ErrInvalid},
		{metadata.ErrFull, hetero.ErrNoMemory},
		{metadata.ErrQuota, hetero.ErrNoMemory},
		{metadata.ErrNoSpace, hetero.ErrNoMemory},

		{devices.ErrOutOfMemory, hetero.ErrNoMemory},
		{devices.ErrHandle, hetero.ErrInvalid},
		{devices.ErrNoDevice, hetero.ErrInvalid},
		{devices.ErrLost, hetero.ErrLost},
		{devices.ErrUnsupported, hetero.ErrUnsupported},
	}
}

// translate wraps an error of the store in the corresponding error of hetero, keeping its
// text, which follows that of hetero's where it adds something. An error that is already ErrOwnerGone is unchanged.
func translate(err error) error {
	if err == nil || errors.Is(err, hetero.ErrOwnerGone) {
		return err
	}
	kind := sentinel(err)
	if errors.Is(kind, hetero.ErrNotFound) || errors.Is(err, cluster.ErrUnreachable) {
		return &saidError{err: err, kind: kind} // the text of the kind says the same again, or is of another cause
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// saidError is an error of a kind that its text does not name.
type saidError struct{ err, kind error }

// Error returns the text of the error, without the names of the packages of kinds.
func (e *saidError) Error() string {
	return strings.TrimPrefix(strings.NewReplacer(": metadata: ", ": ", ": cluster: ", ": ").Replace(": "+e.err.Error()), ": ")
}

// Unwrap returns the kind and the error.
func (e *saidError) Unwrap() []error { return []error{e.kind, e.err} }

func sentinel(err error) error {
	if _, is := errors.AsType[*objects.ShapeError](err); is {
		return hetero.ErrShape
	}
	for _, rule := range errorRules() {
		if errors.Is(err, rule.from) {
			return rule.to
		}
	}
	return hetero.ErrIO
}
