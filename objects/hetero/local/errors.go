package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// errorRule says which of hetero's errors an error of the store is.
type errorRule struct{ from, to error }

// errorRules is the whole mapping, in order: the first that matches decides,
// and what none matches is ErrIO.
func errorRules() []errorRule {
	return []errorRule{
		// Before the rest: where a node did not answer in time they wrap that.
		{cluster.ErrUnreachable, hetero.ErrDisconnected},
		{cluster.ErrVersion, hetero.ErrDisconnected},
		{cluster.ErrDenied, hetero.ErrNotAuthorized},
		{cluster.ErrStale, hetero.ErrLost},

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

// translate tells an error of the store by hetero's, with the store's text
// behind it. One that is told so already stays as it is.
func translate(err error) error {
	if err == nil || errors.Is(err, hetero.ErrOwnerGone) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel(err), err)
}

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
