package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// noFiles reports whether the cause of an error is that the daemon, or the machine, can open no more files.
func noFiles(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// filesOpen returns errFilesOpen, with the cause, for an error that has that cause, and others as they are.
func filesOpen(err error) error {
	if noFiles(err) {
		return fmt.Errorf("%w: %w", errFilesOpen, err)
	}
	return err
}

// statusOf returns the HTTP status and code of an error; an unknown error is an internal
// one.
func statusOf(err error) (status int, code string) {
	if known := hetero.StatusOf(err); errors.Is(err, known.Err) {
		return httpStatus(known.Errno), known.Name
	}
	for _, rule := range []struct {
		err    error
		status int
		code   string
	}{
		{ErrBusy, http.StatusConflict, adminapi.CodeBusy},
		{errFilesOpen, http.StatusConflict, adminapi.CodeBusy},
		// Descriptors that were not received are missing too: that does not make the
		// request invalid.
		{owner.ErrSilent, http.StatusConflict, adminapi.CodeBusy},
		{ErrNotFound, http.StatusNotFound, adminapi.CodeNotFound},
		{errForbidden, http.StatusForbidden, adminapi.CodeForbidden},
		{errInvalid, http.StatusBadRequest, adminapi.CodeInvalid},
		{errNoSession, http.StatusForbidden, adminapi.CodeNoSession},
		{errEnding, http.StatusServiceUnavailable, adminapi.CodeEnding},
		{frames.ErrFrame, http.StatusBadRequest, adminapi.CodeInvalid},
		{adminapi.ErrJSON, http.StatusBadRequest, adminapi.CodeInvalid},
		{context.Canceled, http.StatusServiceUnavailable, adminapi.CodeEnding},

		{metadata.ErrNotExist, http.StatusNotFound, adminapi.CodeNotFound},
		{metadata.ErrNotDir, http.StatusNotFound, adminapi.CodeNotFound},
		{metadata.ErrInvalid, http.StatusBadRequest, adminapi.CodeInvalid},
		{metadata.ErrPermission, http.StatusForbidden, adminapi.CodeForbidden},
		{objects.ErrForbidden, http.StatusForbidden, adminapi.CodeForbidden},
		{objects.ErrBusy, http.StatusConflict, adminapi.CodeBusy},
		{objects.ErrInvalid, http.StatusBadRequest, adminapi.CodeInvalid},
		{objects.ErrTooLarge, http.StatusBadRequest, adminapi.CodeInvalid},
		{objects.ErrUnsupported, http.StatusNotImplemented, adminapi.CodeUnsupported},
		{objects.ErrLost, http.StatusGone, adminapi.CodeLost},
		{devices.ErrHandle, http.StatusBadRequest, adminapi.CodeInvalid},
		{devices.ErrUnsupported, http.StatusNotImplemented, adminapi.CodeUnsupported},
		{metadata.ErrQuota, http.StatusInsufficientStorage, adminapi.CodeNoMemory},
		{metadata.ErrNoSpace, http.StatusInsufficientStorage, adminapi.CodeNoMemory},
		{devices.ErrOutOfMemory, http.StatusInsufficientStorage, adminapi.CodeNoMemory},
		{devices.ErrLost, http.StatusGone, adminapi.CodeLost},
	} {
		if errors.Is(err, rule.err) {
			return rule.status, rule.code
		}
	}
	return http.StatusInternalServerError, adminapi.CodeInternal
}

// httpStatus returns the HTTP status nearest to an errno.
func httpStatus(e syscall.Errno) int {
	switch e {
	case syscall.EINVAL:
		return http.StatusBadRequest
	case syscall.ENOENT:
		return http.StatusNotFound
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return http.StatusForbidden
	case syscall.EEXIST, syscall.EBUSY:
		return http.StatusConflict
	case syscall.ENOSPC:
		return http.StatusInsufficientStorage
	case syscall.EOPNOTSUPP:
		return http.StatusNotImplemented
	case syscall.ETIMEDOUT:
		return http.StatusGatewayTimeout
	case syscall.EINTR, syscall.ESHUTDOWN, syscall.ENOTCONN:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
