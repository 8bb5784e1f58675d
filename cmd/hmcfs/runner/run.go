package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// What callers tell apart.
var (
	// ErrRank is a rank that has failed.
	ErrRank = errors.New("a rank failed")
	// ErrTimeout is a run whose time was over.
	ErrTimeout = errors.New("time is over")
	// ErrProgram is a program that can't be run.
	ErrProgram = errors.New("no program")
	// ErrPlace is a directory for a job's files that can't be used.
	ErrPlace = errors.New("use another directory")
	// ErrStopped is a run that was stopped from outside.
	ErrStopped = errors.New("stopped")
)

// Options is what a job is started with. What is left open comes from its
// Config.
type Options struct {
	// Program is the program and its arguments.
	Program []string
	// Ranks is how many; 0 is the config's.
	Ranks int
	// Timeout is the time of the whole run; 0 is the config's, or none.
	Timeout time.Duration
	// Grace is how long a rank has after SIGTERM. 0 is DefaultGrace.
	Grace time.Duration
	// Window is the size of each window; 0 is the config's, or what its buffers
	// need, or DefaultWindow.
	Window devices.Size
	// Dir is where windows and buffers are files. Empty is anonymous memory.
	Dir string
	// LogDir gets rankN.log of each rank; Save gets the buffers after the run.
	// Empty is none.
	LogDir string
	Save   string
	// TempDir is where the job's directory is made. Its path is short, for the
	// sockets in it.
	TempDir string
	// Transport is what ranks are told to use (HMCFS_TRANSPORT). Empty leaves it
	// to them.
	Transport string
	// Unbound has ranks run on any processor, and not each on its share of them.
	Unbound bool
	// Supervisor is the command that calls Supervise, without the program, and
	// Executable the file that is run as it.
	Supervisor []string
	Executable string
	// Out and Errors get what the ranks write.
	Out    io.Writer
	Errors io.Writer
}

// Report is how a run went.
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

// findProgram is what a shell would run.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		cause, out := err, "check its path"
		if e, ok := errors.AsType[*exec.Error](err); ok {
			cause = e.Err
		}
		if pe, ok := errors.AsType[*os.PathError](cause); ok {
			cause = pe.Err
		}
		if errors.Is(err, os.ErrPermission) {
			out = "make it executable: chmod +x " + name
		}
		return "", &programError{text: fmt.Sprintf("program %q: %v; %s", name, cause, out), err: err}
	}
	return filepath.Abs(path)
}

// programError is ErrProgram, in the words of its cause.
type programError struct {
	text string
	err  error
}

func (e *programError) Error() string { return e.text }

func (e *programError) Unwrap() []error { return []error{ErrProgram, e.err} }

// Run runs a job to its end, and returns when nothing of it is left. The
// context's end is that of the job, in order; force's is at once. The report is
// there as soon as ranks were started.
//
// Errors: ErrRank, as a FailedError; ErrTimeout; ErrStopped; ErrSize;
// ErrProgram; ErrPlace.
func Run(ctx context.Context, p *Plan, force <-chan struct{}) (*Report, error) {
	program, err := findProgram(p.Program[0])
	if err != nil {
		return nil, err
	}
	p.Program = append([]string{program}, p.Program[1:]...)
	for _, dir := range []string{p.LogDir, p.Save} {
		if dir == "" {
			continue
		}
		if err = os.MkdirAll(dir, 0o777); err != nil {
			return nil, fmt.Errorf("%w; %w", err, ErrPlace)
		}
	}
	j, err := newJob(p)
	if err != nil {
		return nil, err
	}
	w := watch{job: j, ended: make(chan Ending, p.Ranks), force: force, report: &Report{Ranks: p.Ranks}}
	if w.meeting, err = newMeeting(filepath.Join(j.dir, barrierSock), p.Ranks); err != nil {
		return nil, errors.Join(err, j.close())
	}
	// The supervisors come first: from now on there is somebody to clean up.
	if err = w.begin(); err == nil {
		err = j.load(ctx)
	}
	if err == nil {
		err = w.run(ctx)
	}
	if err == nil && p.Golden != nil {
		w.report.Verdict, err = j.verify(ctx)
	}
	if p.Save != "" && len(w.report.Endings) > 0 {
		err = errors.Join(err, j.save(p.Save))
	}
	return w.report, errors.Join(err, w.close())
}

// watch is a job whose ranks run.
type watch struct {
	job     *job
	meeting *meeting
	ranks   []*child
	logs    []*os.File
	ended   chan Ending
	force   <-chan struct{}
	report  *Report
	// cause is why ranks are ended that could go on.
	cause error
	// kill fires when ranks that were asked to end have had their time.
	kill <-chan time.Time
}

// begin starts the supervisors of all ranks.
func (w *watch) begin() error {
	p := w.job.plan
	streams := [2]lines{{out: p.Out}, {out: p.Errors}}
	for rank := range p.Ranks {
		env, err := w.job.environment(rank)
		if err != nil {
			return err
		}
		var log io.Writer
		if p.LogDir != "" {
			f, cerr := createAt(p.LogDir, "rank"+strconv.Itoa(rank)+".log", 0o666)
			if cerr != nil {
				return cerr
			}
			log, w.logs = f, append(w.logs, f)
		}
		prefix := prefixOf(rank, p.Ranks)
		c, err := w.job.begin(&order{
			rank: rank, program: slices.Concat(p.Program, w.job.args(rank)), env: env,
			pass: func(stream int, from io.Reader) error { return streams[stream].pass(prefix, from, log) },
		})
		if err != nil {
			return err
		}
		w.ranks = append(w.ranks, c)
	}
	return nil
}

// close ends what is left of the job. The supervisors go last: the job's
// directory is theirs to remove if this fails.
func (w *watch) close() error {
	if slices.ContainsFunc(w.ranks, func(c *child) bool { return c.lost.Load() }) {
		sweep(w.job.dir)
	}
	w.meeting.close()
	err := w.job.close()
	for _, c := range w.ranks {
		c.close()
	}
	for _, f := range w.logs {
		err = errors.Join(err, f.Close())
	}
	return err
}

// run has all ranks start, and waits for them.
func (w *watch) run(ctx context.Context) error {
	begun := time.Now()
	p := w.job.plan
	w.tell(start)
	for _, c := range w.ranks {
		go func() { w.ended <- c.wait() }()
	}
	var late <-chan time.Time
	if p.Timeout > 0 {
		t := time.NewTimer(p.Timeout)
		defer t.Stop()
		late = t.C
	}
	stopped := ctx.Done()
	for left := len(w.ranks); left > 0; {
		select {
		case e := <-w.ended:
			left--
			w.note(e)
		case <-stopped:
			stopped = nil
			w.end(ErrStopped)
		case <-late:
			w.end(fmt.Errorf("%w: the run took longer than its timeout of %v", ErrTimeout, p.Timeout))
		case <-w.force:
			w.force = nil
			w.tell(endNow)
		case <-w.kill:
			w.tell(endNow)
		}
	}
	w.report.Seconds = time.Since(begun).Seconds()
	slices.SortFunc(w.report.Endings, func(a, b Ending) int { return a.Rank - b.Rank })
	return w.cause
}

// note notes that a rank has ended.
func (w *watch) note(e Ending) {
	w.meeting.end(e.Rank)
	e.Ended = w.cause != nil && e.Failed()
	w.report.Endings = append(w.report.Endings, e)
	if e.Failed() && w.cause == nil {
		w.end(&FailedError{First: e, Others: w.job.plan.Ranks - len(w.report.Endings)})
	}
}

// end asks all ranks to end. Only the first cause counts.
func (w *watch) end(cause error) {
	if w.cause != nil {
		return
	}
	w.cause = cause
	w.tell(endSoon)
	grace := w.job.plan.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	w.kill = time.After(grace)
}

func (w *watch) tell(order byte) {
	for _, r := range w.ranks {
		r.tell(order)
	}
}
