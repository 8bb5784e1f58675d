package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// statusOf says with which status and code an error is told; what nothing is
// known of is the daemon's own fault.
func statusOf(err error) (status int, code string) {
	for _, rule := range []struct {
		err    error
		status int
		code   string
	}{
		{ErrBusy, http.StatusConflict, adminapi.CodeBusy},
		{ErrNotFound, http.StatusNotFound, adminapi.CodeNotFound},
		{errForbidden, http.StatusForbidden, adminapi.CodeForbidden},
		{errInvalid, http.StatusBadRequest, adminapi.CodeInvalid},
		{errEnding, http.StatusServiceUnavailable, adminapi.CodeEnding},
		{adminapi.ErrFrame, http.StatusBadRequest, adminapi.CodeInvalid},
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
		{devices.ErrOutOfMemory, http.StatusInsufficientStorage, adminapi.CodeNoMemory},
		{devices.ErrLost, http.StatusGone, adminapi.CodeLost},
	} {
		if errors.Is(err, rule.err) {
			return rule.status, rule.code
		}
	}
	return http.StatusInternalServerError, adminapi.CodeInternal
}
