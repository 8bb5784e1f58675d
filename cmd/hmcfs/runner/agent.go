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

// agent is a program such as ssh, which runs another one on a host and is the
// way to its standard streams.
type agent struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	// ended is closed when the program has.
	ended chan struct{}
	// read is closed when its standard error has been read to the end.
	read chan struct{}
	// last is the end of that, for an error.
	last tail
}

// lastWords bounds the wait for what an agent that has ended has left in
// its pipes.
const lastWords = 2 * time.Second

// startAgent starts an agent. Its standard error is passed on.
func startAgent(command []string, errs *stream) (*agent, error) {
	var theirs, ours [3]*os.File
	for i := range theirs {
		from, to, err := os.Pipe()
		if err != nil {
			adminapi.CloseAll(slices.Concat(theirs[:i], ours[:i]))
			return nil, err
		}
		if theirs[i], ours[i] = to, from; i == 0 {
			theirs[i], ours[i] = from, to
		}
	}
	a := &agent{stdin: ours[0], stdout: ours[1], stderr: ours[2], ended: make(chan struct{}), read: make(chan struct{})}
	a.cmd = exec.Command(command[0], command[1:]...)
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	// ^C is for the runner, which ends the ranks in order.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := a.cmd.Start()
	adminapi.CloseAll(theirs[:])
	if err != nil {
		adminapi.CloseAll(ours[:])
		return nil, err
	}
	go func() {
		defer close(a.read)
		_, _ = io.Copy(io.MultiWriter(&a.last, errs), a.stderr) // neither writer fails
		errs.finish()
	}()
	go func() {
		_ = a.cmd.Wait() // how it has ended is told by String
		// What it has started may still hold the pipes.
		time.AfterFunc(lastWords, func() { adminapi.CloseAll([]*os.File{a.stdout, a.stderr}) })
		close(a.ended)
	}()
	return a, nil
}

// stop ends the agent, and returns when it is gone. It has some time to go by
// itself, now that nothing more comes.
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

// how says how the agent has ended, if it has: an agent that can't reach its
// host says so, and ends.
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

// link is the two directions between runner and host.
type link struct {
	from io.Reader
	to   io.Writer
	// agent is nil for this machine.
	agent *agent
	// gone is closed when the host's part has ended that is in this process.
	gone chan struct{}
}

// connectHere begins this machine's part, in this process.
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

// hangUp ends the direction to the host, which notices, and cleans up.
func (l *link) hangUp() {
	if c, ok := l.to.(io.Closer); ok {
		_ = c.Close()
	}
}

// close is hangUp, and waits for the host to end.
func (l *link) close(grace time.Duration) {
	l.hangUp()
	if l.agent != nil {
		l.agent.stop(grace)
		return
	}
	<-l.gone
}

// reader returns the stream from a host, as frames.
func (l *link) reader(silence time.Duration) *bufio.Reader {
	if l.agent == nil {
		silence = 0 // it is this process
	}
	return bufio.NewReaderSize(&patient{from: l.from, limit: silence}, piece)
}
