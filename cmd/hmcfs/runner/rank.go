package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Ending describes how a rank has ended.
type Ending struct {
	Rank int `json:"rank"`
	// Host is the host of the rank, if there are several.
	Host string `json:"host,omitempty"`
	// Code is the program's exit code, or -1 if a signal has ended it or it could not be
	// started.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"`
	// Ended reports that the runner has ended it, because of another failure.
	Ended bool `json:"ended,omitempty"`
}

// Failed reports that the exit code is not 0.
func (e *Ending) Failed() bool { return e.Code != 0 }

// String describes how the rank has ended.
func (e *Ending) String() string {
	switch {
	case e.Error != "":
		return fmt.Sprintf("rank %d: %s", e.Rank, e.Error)
	case e.Signal != "":
		return fmt.Sprintf("rank %d was ended by %s", e.Rank, e.Signal)
	}
	return fmt.Sprintf("rank %d ended with exit code %d", e.Rank, e.Code)
}

// child is a supervisor with its rank.
type child struct {
	rank    int
	cmd     *exec.Cmd
	control *os.File
	status  *os.File
	// lost reports that the supervisor has ended before its program.
	lost atomic.Bool
	// streams waits until all output has been passed on.
	streams sync.WaitGroup
	from    []*os.File
}

// order describes a child to start.
type order struct {
	rank    int
	program []string
	env     []string
	// pass consumes the output of its first or second stream.
	pass func(stream int, from io.Reader) error
}

// begin starts a supervisor, which waits for the order to start the program.
func (j *job) begin(o *order) (*child, error) {
	ours, theirs, err := pipes(4) // control, status, and two output streams
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", o.rank, err)
	}
	defer adminapi.CloseAll(theirs)
	c := &child{rank: o.rank, control: ours[0], status: ours[1], from: ours[2:]}
	c.cmd = exec.Command(j.plan.Supervisor[0], slices.Concat(j.plan.Supervisor[1:], o.program)...)
	c.cmd.Path, c.cmd.Err = j.plan.Executable, nil
	c.cmd.Env = slices.Concat(os.Environ(), stringsOf(j.Env), o.env)
	c.cmd.ExtraFiles = theirs[:2]
	c.cmd.Stdout, c.cmd.Stderr = theirs[2], theirs[3]
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leave := j.bind(o.rank)
	err = c.cmd.Start()
	leave()
	if err != nil {
		adminapi.CloseAll(ours)
		return nil, fmt.Errorf("start rank %d: %w", o.rank, err)
	}
	for i, from := range c.from {
		c.streams.Go(func() {
			if err := o.pass(i, from); err != nil {
				_, _ = io.Copy(io.Discard, from) // so that it does not block
			}
		})
	}
	return c, nil
}

// wait waits for the end of the program and of its output.
func (c *child) wait() Ending {
	e := Ending{Rank: c.rank}
	var said ending
	from := json.NewDecoder(c.status)
	err := from.Decode(&said)
	if err == nil && said.PID != 0 {
		pid := said.PID
		said = ending{}
		if err = from.Decode(&said); err != nil {
			signalGroup(pid, unix.SIGKILL)
		}
	}
	if err != nil {
		c.lost.Store(true)
		e.Code, e.Error = -1, "its supervisor was killed"
		return e
	}
	c.streams.Wait()
	e.Code, e.Error = said.Code, said.Error
	if said.Signal != 0 {
		e.Code, e.Signal = -1, unix.SignalName(syscall.Signal(said.Signal))
	}
	return e
}

// tell sends an order to the supervisor.
func (c *child) tell(order byte) {
	_, _ = c.control.Write([]byte{order}) // a supervisor that has ended needs no order
}

// close dismisses the supervisor, and waits for it.
func (c *child) close() {
	c.tell(dismiss)
	_ = c.control.Close()
	_ = c.cmd.Wait() // the program's outcome is known
	for _, from := range c.from {
		// Processes without a supervisor may still hold the streams.
		_ = from.SetReadDeadline(time.Now().Add(time.Second))
	}
	c.streams.Wait()
	adminapi.CloseAll(append(c.from, c.status))
}
