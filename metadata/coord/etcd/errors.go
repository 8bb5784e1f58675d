package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

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
