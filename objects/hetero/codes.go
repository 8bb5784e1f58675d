package hetero

import (
	"context"
	"errors"
	"syscall"
)

// Errors of keys and calls.
var (
	ErrInvalid       = errors.New("invalid argument")
	ErrNotFound      = errors.New("does not exist")
	ErrExist         = errors.New("key exists already")
	ErrShape         = errors.New("blobs don't fit")
	ErrInconsistent  = errors.New("inconsistent with the existing state of the key")
	ErrTimeout       = errors.New("not available in time")
	ErrInterrupted   = errors.New("interrupted")
	ErrNoMemory      = errors.New("out of memory")
	ErrNotAuthorized = errors.New("not permitted for this user")
	ErrNotOwner      = errors.New("not owned by this client")
	ErrReadOnly      = errors.New("the mount is read-only")
	ErrOwnerGone     = errors.New("the client that owned the memory has ended")
	ErrWithdrawn     = errors.New("withdrawn before it was received")
	ErrLost          = errors.New("content lost, because its memory no longer exists")
	ErrBusy          = errors.New("in use; try again")
	ErrUnsupported   = errors.New("not supported here")
	ErrClosed        = errors.New("the client is closed")
	ErrDisconnected  = errors.New("no answer from the daemon")
	ErrIO            = errors.New("input/output error")
)

// Status is one row of the mapping from the seed system's status codes.
type Status struct {
	// Err is the sentinel.
	Err error
	// Name is the sentinel's name on the wire and in --json.
	Name string
	// Errno is the equivalent errno.
	Errno syscall.Errno
	// Seed lists the status names of openYuanrong v0.9.2 that it corresponds to.
	Seed []string
}

// Statuses returns the whole mapping, in the order in which StatusOf searches it.
func Statuses() []Status {
	return []Status{
		{ErrTimeout, "timeout", syscall.ETIMEDOUT, []string{"K_FUTURE_TIMEOUT", "K_RPC_DEADLINE_EXCEEDED", "K_WORKER_TIMEOUT", "K_MASTER_TIMEOUT"}},
		{ErrInterrupted, "interrupted", syscall.EINTR, []string{"K_INTERRUPTED", "K_RPC_CANCELLED"}},
		{ErrShape, "shape", syscall.EINVAL, []string{"K_INVALID", "K_RUNTIME_ERROR"}},
		{ErrInconsistent, "inconsistent", syscall.EIO, []string{"K_DATA_INCONSISTENCY", "K_RUNTIME_ERROR"}},
		{ErrInvalid, "invalid", syscall.EINVAL, []string{"K_INVALID", "K_OUT_OF_RANGE"}},
		{ErrOwnerGone, "owner_gone", syscall.EIO, []string{"K_RPC_PEER_DEAD"}},
		{ErrWithdrawn, "withdrawn", syscall.ENOENT, []string{"K_NOT_FOUND"}},
		{ErrLost, "lost", syscall.EIO, []string{"K_NOT_FOUND"}},
		{ErrNotFound, "not_found", syscall.ENOENT, []string{"K_NOT_FOUND"}},
		{ErrExist, "exists", syscall.EEXIST, []string{"K_DUPLICATED", "K_OC_KEY_ALREADY_EXIST"}},
		{ErrNoMemory, "no_memory", syscall.ENOSPC, []string{"K_OUT_OF_MEMORY", "K_NO_SPACE"}},
		{ErrNotAuthorized, "not_authorized", syscall.EACCES, []string{"K_NOT_AUTHORIZED"}},
		{ErrNotOwner, "not_owner", syscall.EPERM, []string{"K_NOT_OWNER"}},
		{ErrReadOnly, "read_only", syscall.EROFS, []string{"K_NOT_SUPPORTED"}},
		{ErrBusy, "busy", syscall.EBUSY, []string{"K_TRY_AGAIN"}},
		{ErrUnsupported, "unsupported", syscall.EOPNOTSUPP, []string{"K_NOT_SUPPORTED"}},
		{ErrClosed, "closed", syscall.ESHUTDOWN, []string{"K_SHUTTING_DOWN"}},
		{ErrDisconnected, "disconnected", syscall.ENOTCONN, []string{"K_CLIENT_WORKER_DISCONNECT", "K_RPC_UNAVAILABLE"}},
		{ErrIO, "io", syscall.EIO, []string{"K_IO_ERROR", "K_UNKNOWN_ERROR", "K_ACL_ERROR", "K_CUDA_ERROR"}},
	}
}

// StatusOf returns the row of an error: the first row whose sentinel matches, or that of
// ErrIO.
func StatusOf(err error) Status {
	rows := Statuses()
	for _, s := range rows {
		if errors.Is(err, s.Err) {
			return s
		}
	}
	return rows[len(rows)-1]
}

// ContextError returns the error of a call whose context has ended.
func ContextError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, context.Canceled):
		return ErrInterrupted
	}
	return err
}
