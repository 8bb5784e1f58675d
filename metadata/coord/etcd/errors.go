package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// fault translates an error of the client library to one of coord. ctx is the caller's,
// without this package's own timeout.
func (s *Service) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return coord.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	// The cause is included as text only: our timeout must not look like the caller's.
	return fmt.Errorf("etcd at %s: %w: %s", s.where, meaning(err), err.Error())
}

// meaning returns the sentinel for an error: ErrUnavailable if it is not a known one.
func meaning(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return coord.ErrLease
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return coord.ErrCompacted
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty):
		return coord.ErrDenied
	}
	if c := code(err); c == codes.PermissionDenied || c == codes.Unauthenticated {
		return coord.ErrDenied
	}
	return coord.ErrUnavailable
}

func code(err error) codes.Code {
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return known.Code()
	}
	return status.Code(err)
}
