package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// agent is a program such as ssh, which runs another program on a host and connects to its
// standard streams.
type agent struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	// ended is closed when the program has ended.
	ended chan struct{}
	// read is closed when its standard error has been read to the end.
	read chan struct{}
	// last is the end of its standard error, for error messages.
	last tail
}

// lastWords bounds the wait for output that an agent has left in its pipes.
const lastWords = 2 * time.Second

// pipes creates pipes to a child process, which reads from the first one and writes to the
// others.
func pipes(n int) (ours, theirs []*os.File, err error) {
	for i := range n {
		from, to, err := os.Pipe()
		if err != nil {
			adminapi.CloseAll(slices.Concat(ours, theirs))
			return nil, nil, err
		}
		if i == 0 {
			from, to = to, from
		}
		ours, theirs = append(ours, from), append(theirs, to)
	}
	return ours, theirs, nil
}

// startAgent starts an agent. Its standard error is passed on to errs.
func startAgent(command []string, errs *stream) (*agent, error) {
	ours, theirs, err := pipes(3)
	if err != nil {
		return nil, err
	}
	a := &agent{stdin: ours[0], stdout: ours[1], stderr: ours[2], ended: make(chan struct{}), read: make(chan struct{})}
	a.cmd = exec.Command(command[0], command[1:]...)
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	// ^C is for the runner, which ends the ranks in order.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = a.cmd.Start()
	adminapi.CloseAll(theirs)
	if err != nil {
		adminapi.CloseAll(ours)
		return nil, err
	}
	go func() {
		defer close(a.read)
		_, _ = io.Copy(io.MultiWriter(&a.last, errs), a.stderr) // neither writer fails
		errs.finish()
	}()
	go func() {
		_ = a.cmd.Wait() // agent.how reports the outcome
		// Processes that it has started may still hold the pipes.
		time.AfterFunc(lastWords, func() { adminapi.CloseAll([]*os.File{a.stdout, a.stderr}) })
		close(a.ended)
	}()
	return a, nil
}

// stop ends the agent, and returns when it has ended. It has a grace period to end on its
// own after its input is closed.
func (a *agent) stop(grace time.Duration) {
	_ = a.stdin.Close()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-a.ended:
	case <-t.C:
		_ = unix.Kill(-a.cmd.Process.Pid, unix.SIGKILL)
		<-a.ended
	}
	<-a.read
	adminapi.CloseAll([]*os.File{a.stdout, a.stderr})
}

// how describes how the agent has ended, if it has: an agent that can't reach its host
// writes an error and ends.
func (a *agent) how() string {
	select {
	case <-a.ended:
	case <-time.After(lastWords):
		return ""
	}
	<-a.read
	e := endingOf(a.cmd, nil)
	text := fmt.Sprintf("%s ended with exit code %d", a.cmd.Args[0], e.Code)
	if e.Signal != 0 {
		text = fmt.Sprintf("%s was ended by %s", a.cmd.Args[0], unix.SignalName(syscall.Signal(e.Signal)))
	}
	if line := lastLine(a.last.held); line != "" {
		text += ": " + shorten(line)
	}
	return text
}

// link holds both directions of the connection between runner and host.
type link struct {
	from io.Reader
	to   io.Writer
	// agent is nil for the local machine.
	agent *agent
	// gone is closed when a host's part in this process has ended.
	gone chan struct{}
}

// connectHere starts the local machine's part, in this process.
func connectHere(ctx context.Context, o *HostOptions) *link {
	toHost, fromRunner := io.Pipe()
	toRunner, fromHost := io.Pipe()
	l := &link{from: toRunner, to: fromRunner, gone: make(chan struct{})}
	go func() {
		defer close(l.gone)
		err := ServeHost(ctx, toHost, fromHost, o)
		_ = fromHost.CloseWithError(errors.Join(err, io.EOF))
		_ = toHost.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	}()
	return l
}

// hangUp closes the direction to the host, which then cleans up.
func (l *link) hangUp() {
	if c, ok := l.to.(io.Closer); ok {
		_ = c.Close()
	}
}

// close is hangUp, and then waits for the host to end.
func (l *link) close(grace time.Duration) {
	l.hangUp()
	if l.agent != nil {
		l.agent.stop(grace)
		return
	}
	<-l.gone
}

// reader returns the stream of frames from a host.
func (l *link) reader(silence time.Duration) *bufio.Reader {
	if l.agent == nil {
		silence = 0 // the host is in this process
	}
	return bufio.NewReaderSize(&timedReader{from: l.from, limit: silence}, piece)
}
