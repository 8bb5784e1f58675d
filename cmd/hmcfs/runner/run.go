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

// What callers tell apart.
var (
	// ErrRank is a rank that has failed.
	ErrRank = errors.New("a rank failed")
	// ErrTimeout is a run whose time was over.
	ErrTimeout = errors.New("timed out")
	// ErrProgram is a program that can't be run.
	ErrProgram = errors.New("no program")
	// ErrPlace is a directory for a job's files that can't be used.
	ErrPlace = errors.New("use another directory")
	// ErrStopped is a run that was stopped from outside.
	ErrStopped = errors.New("stopped")
)

// Options describe a job. What is left open comes from its
// Config.
type Options struct {
	// Program is the program and its arguments.
	Program []string
	// Ranks is their number; 0 is the config's.
	Ranks int
	// Timeout is the time of the whole run; 0 is the config's, or none.
	Timeout time.Duration
	// Grace is the time that a rank has after SIGTERM. 0 is DefaultGrace.
	Grace time.Duration
	// Window is the size of each window; 0 is the config's, or what its buffers
	// need, or DefaultWindow.
	Window devices.Size
	// Dir is the directory in which windows and buffers are files. Empty is anonymous memory.
	Dir string
	// LogDir gets rankN.log of each rank; Save gets the buffers after the run.
	// Empty is none.
	LogDir string
	Save   string
	// TempDir is the directory in which the job's is made. Its path is short, for the
	// sockets in it.
	TempDir string
	// Transport is the one that ranks are told to use (HMCFS_TRANSPORT). Empty leaves it
	// to them.
	Transport string
	// Unbound has ranks run on any processor, and not each on its share of them.
	Unbound bool
	// Supervisor is the command that calls Supervise, without the program, and
	// Executable the file that is run as it.
	Supervisor []string
	Executable string
	// Hosts are the machines of the ranks, filled in their order. None is this
	// machine alone.
	Hosts []Place
	// Agent is the command that, with the name of a host and another command
	// behind it, runs that there, such as ssh. RemoteCommand is what calls
	// ServeHost there.
	Agent         []string
	RemoteCommand []string
	// WorkDir is the current directory of the ranks of other hosts; empty leaves
	// them where the agent puts them. Export are variables for all ranks, as NAME=VALUE.
	WorkDir string
	Export  []string
	// Patience bounds the wait for a host to be there; 0 is DefaultPatience.
	// Silence bounds the wait of both sides of a connection for a word of each other;
	// 0 is DefaultSilence.
	Patience time.Duration
	Silence  time.Duration
	// Out and Errors get what the ranks write.
	Out    io.Writer
	Errors io.Writer
}

// Report tells how a run went.
type Report struct {
	Ranks   int      `json:"ranks"`
	Seconds float64  `json:"seconds"`
	Endings []Ending `json:"endings"`
	Verdict *Verdict `json:"verification,omitempty"`
}

// Failed are the ranks that failed by themselves.
func (r *Report) Failed() []Ending {
	return slices.DeleteFunc(slices.Clone(r.Endings), func(e Ending) bool { return !e.Failed() || e.Ended })
}

// FailedError is a rank that has failed, the first one. It is ErrRank.
type FailedError struct {
	First  Ending
	Others int
}

// Error says which rank, and how.
func (e *FailedError) Error() string {
	if e.Others == 0 {
		return e.First.String()
	}
	return fmt.Sprintf("%s; the other ranks were ended", &e.First)
}

// Is makes the error ErrRank.
func (e *FailedError) Is(target error) bool { return target == ErrRank }

// Run runs a job to its end, and returns when nothing of it is left. The
// context's end is that of the job, in order; force's is at once. The report is
// there as soon as ranks were started.
//
// Errors: ErrRank, as a FailedError; ErrTimeout; ErrStopped; ErrSize;
// ErrProgram; ErrPlace; ErrHost.
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
	// Its end is that of the job, in order: nothing is cut short.
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
