package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Errors that callers distinguish.
var (
	// ErrRank reports a rank that has failed.
	ErrRank = errors.New("a rank failed")
	// ErrTimeout reports a run that has exceeded its timeout.
	ErrTimeout = errors.New("timed out")
	// ErrProgram reports a program that can't be executed.
	ErrProgram = errors.New("no program")
	// ErrPlace reports a directory for a job's files that can't be used.
	ErrPlace = errors.New("use another directory")
	// ErrStopped reports a run that was stopped from outside.
	ErrStopped = errors.New("stopped")
)

// Options describes a job. Unset fields are taken from its Config.
type Options struct {
	// HostOptions are those of the local machine's part.
	HostOptions

	// Program is the program and its arguments.
	Program []string
	// Ranks is the number of ranks; 0 means the config's.
	Ranks int
	// Timeout bounds the whole run; 0 means the config's value, or no limit.
	Timeout time.Duration
	// Grace is the time that a rank has to end after SIGTERM. 0 means DefaultGrace.
	Grace time.Duration
	// Window is the size of each window; 0 means the config's value, or the size that its
	// buffers need, or DefaultWindow.
	Window devices.Size
	// Dir is the directory of windows and buffers as files. Empty means anonymous memory.
	Dir string
	// LogDir receives rankN.log of each rank; Save receives the buffers after the run.
	// Empty disables them.
	LogDir string
	Save   string
	// Transport is the transport that ranks are to use (HMCFS_TRANSPORT). Empty leaves the
	// choice to them.
	Transport string
	// Unbound lets ranks run on any processor, instead of a share for each.
	Unbound bool
	// Hosts are the machines of the ranks, filled in order. None means the local machine
	// only.
	Hosts []Place
	// Agent is a command, such as ssh, that is followed by the name of a host and another
	// command, and runs that there. RemoteCommand is the command that calls ServeHost
	// there.
	Agent         []string
	RemoteCommand []string
	// WorkDir is the current directory of the ranks of other hosts; empty means the one set
	// by the agent. Export holds variables for all ranks, as NAME=VALUE.
	WorkDir string
	Export  []string
	// HostTimeout bounds the wait for a host to become ready; 0 means DefaultHostTimeout. Silence
	// bounds the time without a message in either direction of a connection; 0 means
	// DefaultSilence.
	HostTimeout time.Duration
	Silence     time.Duration
	// Out and Errors receive the output of the ranks.
	Out    io.Writer
	Errors io.Writer
}

// Report describes a run.
type Report struct {
	Ranks   int      `json:"ranks"`
	Seconds float64  `json:"seconds"`
	Endings []Ending `json:"endings"`
	Verdict *Verdict `json:"verification,omitempty"`
}

// Failed returns the ranks that failed on their own.
func (r *Report) Failed() []Ending {
	return slices.DeleteFunc(slices.Clone(r.Endings), func(e Ending) bool { return !e.Failed() || e.Ended })
}

// FailedError reports the first rank that has failed. It matches ErrRank.
type FailedError struct {
	First  Ending
	Others int
}

// Error names the rank, and how it has ended.
func (e *FailedError) Error() string {
	if e.Others == 0 {
		return e.First.String()
	}
	return fmt.Sprintf("%s; the other ranks were ended", &e.First)
}

// Is makes the error ErrRank.
func (e *FailedError) Is(target error) bool { return target == ErrRank }

// Run runs a job to its end, and returns when nothing of it is left. The end of the context
// ends the job in order; force ends it at once. The report is returned once ranks have been
// started.
//
// Errors: ErrRank, as a FailedError; ErrTimeout; ErrStopped; ErrSize; ErrProgram; ErrPlace;
// ErrHost.
func Run(ctx context.Context, p *Plan, force <-chan struct{}) (*Report, error) {
	for _, dir := range []string{p.LogDir, p.Save} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, fmt.Errorf("%w; %w", err, ErrPlace)
		}
	}
	w := newWatch(ctx, p, force)
	// The context's end stops the job in order, so it must not cancel operations.
	err := w.open(context.WithoutCancel(ctx))
	if err == nil {
		err = w.course()
	}
	err = errors.Join(err, w.close())
	if !w.started {
		return nil, err
	}
	return w.report, err
}
