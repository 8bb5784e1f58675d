package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The descriptors of a supervisor.
const (
	controlFD = 3
	statusFD  = 4
)

// Orders of the runner to a supervisor. The end of the pipe means endNow.
const (
	start   = 'S' // start the program
	endSoon = 'T' // SIGTERM to the program
	endNow  = 'K' // SIGKILL to all its processes
	dismiss = 'D' // exit; nothing is left to do
)

// elsewhere is a file of the job's directory. It lists the directories outside of it that
// belong to the job, one per line.
const elsewhere = "elsewhere"

// marker is the variable that identifies all processes started by a job's programs.
// Supervisors don't have it.
const marker = "HMCFS_RANK_OF"

// ending is a message of the supervisor: the first has the program's process id, the second
// how it has ended.
type ending struct {
	PID    int    `json:"pid,omitempty"`
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Supervise runs one rank's program, with this process's environment, directory and
// streams. It reports how the program has ended when none of its processes is left. It then
// stays until the runner has finished the job, or has ended, in which case it removes the
// job's directory. The end of the context ends the rank. The runner calls it in a process
// of its own.
func Supervise(ctx context.Context, args []string, jobDir string) error {
	// The kernel kills the program when the thread that has started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	control, status := os.NewFile(controlFD, "control"), os.NewFile(statusFD, "status")
	if control == nil || status == nil || len(args) == 0 {
		return errors.New("not started by hmcfs run")
	}
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(statusFD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt the orphaned processes of a rank: %w", err)
	}
	orders := bufio.NewReader(control)
	first, err := orders.ReadByte()
	over := err != nil || first != start
	// The directory is removed in the end; if the job is over before it has begun, it may
	// be gone already.
	if err = checkJob(jobDir); err != nil && (!over || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if over {
		removeJob(jobDir)
		return nil
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), marker+"="+jobDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	say := json.NewEncoder(status)
	ended := make(chan bool, 1)
	if err = cmd.Start(); err != nil {
		go obey(orders, 0, ended)
		muffle()
		_ = say.Encode(ending{Code: -1, Error: err.Error()})
	} else {
		_ = say.Encode(ending{PID: cmd.Process.Pid})
		go obey(orders, cmd.Process.Pid, ended)
		defer context.AfterFunc(ctx, func() { killAll(cmd.Process.Pid) })()
		err = cmd.Wait()
		reap()
		// The runner reads the program's streams to their end, so this process must not
		// keep them open.
		muffle()
		_ = say.Encode(endingOf(cmd, err)) // a runner that has ended needs no report
	}
	if <-ended {
		return nil
	}
	// If the runner was killed, other supervisors may have been, too.
	sweep(jobDir)
	removeJob(jobDir)
	return nil
}

// muffle replaces the standard streams by /dev/null.
func muffle() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(int(null.Fd()), fd, 0)
	}
	_ = null.Close()
}

// obey executes the runner's orders, and kills everything when the runner has ended. At its
// end it reports whether it was dismissed.
func obey(orders io.ByteReader, group int, over chan<- bool) {
	for {
		switch b, err := orders.ReadByte(); {
		case err != nil:
			killAll(group)
			over <- false
			return
		case b == dismiss:
			over <- true
			return
		case b == endSoon:
			signalGroup(group, unix.SIGTERM)
		case b == endNow:
			killAll(group)
		}
	}
}

// signalGroup signals a program's process group, if there is one.
func signalGroup(group int, s unix.Signal) {
	if group > 0 {
		_ = unix.Kill(-group, s) // it may have ended
	}
}

// killAll kills a program's process group, if there is one, and our other children.
func killAll(group int) {
	signalGroup(group, unix.SIGKILL)
	for _, pid := range children() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// endingOf returns how a command has ended.
func endingOf(cmd *exec.Cmd, err error) ending {
	if cmd.ProcessState == nil {
		return ending{Code: -1, Error: fmt.Sprint(err)}
	}
	e := ending{Code: cmd.ProcessState.ExitCode()}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		e.Signal = int(w.Signal())
	}
	return e
}

// reap kills and waits for all processes that the program has left: orphans become our
// children.
func reap() {
	for {
		killAll(0)
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// processes returns the processes for which is reports true.
func processes(is func(pid int) bool) (out []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && is(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// children returns the processes whose parent is this one.
func children() []int {
	own := os.Getpid()
	return processes(func(pid int) bool { return parentOf(pid) == own })
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The name is in parentheses, and may itself contain parentheses and blanks.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// sweep kills processes of a job's programs that have no supervisor any more, because it
// was killed.
func sweep(jobDir string) {
	for range 100 { // killed processes may just be starting others
		left := marked(jobDir)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// marked returns the processes of a job's programs that still run.
func marked(jobDir string) []int {
	mark := []byte(marker + "=" + jobDir + "\x00")
	return processes(func(pid int) bool {
		// A process that has ended has no environment.
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		return err == nil && bytes.Contains(env, mark)
	})
}

// removeJob removes a job's directory, and the directories elsewhere that belong to it.
func removeJob(dir string) {
	for _, path := range append(outsides(dir), dir) {
		_ = os.RemoveAll(path)
	}
}
