package rankserver

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/env"
	"github.com/hmcfs/hmcfs/transport/job"
)

// errBusy reports more calls in progress than the greeting allows.
var errBusy = errors.New("too many calls in progress; wait for some of them")

// failureOf returns a failure as the rank sees it. The first row that matches decides, so rows
// that are consequences of others come later.
func failureOf(err error) frames.Failure {
	for _, row := range []struct {
		code string
		of   []error
	}{
		{"busy", []error{errBusy, unix.EADDRINUSE}},
		{"inconsistent", []error{collective.ErrInconsistent, domain.ErrMismatch, fabric.ErrProtocol, domain.ErrList}},
		{"retry", []error{collective.ErrRetry}},
		{"interrupted", []error{context.Canceled}},
		{"timeout", []error{collective.ErrTimeout}},
		{"rank_lost", []error{fabric.ErrLink, domain.ErrLeft, domain.ErrPeer, control.ErrDisconnected}},
		{"timeout", []error{context.DeadlineExceeded}},
		{"withdrawn", []error{domain.ErrWithdrawn}},
		{"closed", []error{collective.ErrClosed, job.ErrClosed, domain.ErrDestroyed, devices.ErrClosed, comm.ErrClosed}},
		{"no_memory", []error{unix.ENOMEM, unix.ENOSPC, devices.ErrOutOfMemory}},
		{"not_authorized", []error{os.ErrPermission}},
		{"invalid", []error{
			frames.ErrFrame, collective.ErrArgument, plan.ErrTask, devices.ErrRange, job.ErrOptions, job.ErrWindows, job.ErrBackend,
			domain.ErrNotMember, domain.ErrSelf, comm.ErrNotConnected, env.ErrValue,
		}},
	} {
		for _, sentinel := range row.of {
			if errors.Is(err, sentinel) {
				return frames.Failure{Code: row.code, Text: err.Error()}
			}
		}
	}
	return frames.Failure{Code: "io", Text: err.Error()}
}
