package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// readyMessage is sent once, by a daemon to the command that started it.
type readyMessage struct {
	Ready    bool     `json:"ready"`
	Warnings []string `json:"warnings,omitempty"`
	Error    string   `json:"error,omitempty"`
	Code     int      `json:"code,omitempty"`
}

func writeReady(w io.Writer, msg readyMessage) {
	data, err := json.Marshal(msg)
	if err != nil {
		return
	}
	w.Write(append(data, '\n')) //nolint:errcheck // an error means that the process that started the daemon has ended
}

// daemonise starts the program again as a daemon and returns when the mount answers, or
// with the daemon's error.
func (m *mountRun) daemonise(ctx context.Context, s *config.Settings, p place.Paths) error {
	fresh := !p.HasState()
	if err := p.Prepare(m.UID, s.AllowOther); err != nil {
		return err
	}
	log, err := openLog(logPath(s, p))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	from, to, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	defer func() { _ = from.Close() }()
	cmd := m.daemonCommand(log, to)
	err = cmd.Start()
	_ = to.Close()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	msg, err := awaitReady(ctx, cmd, from)
	if err == nil && msg.Ready {
		for _, w := range msg.Warnings {
			m.note("%s", w)
		}
		return cmd.Process.Release()
	}
	cmd.Wait() //nolint:errcheck // its message, or the lack of one, is the error
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s %s: the daemon exited without reporting an error; see its log %s", m.Args[1], p.MountPoint, log.Name())
	}
	if fresh {
		p.CleanState()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: interrupted; no daemon is left", m.Args[1], p.MountPoint)
	}
	return &codeError{code: msg.Code, err: errors.New(msg.Error)}
}

// daemonCommand returns the command for this program as a daemon, in a session of its own,
// with the log for its standard streams and the pipe as descriptor 3.
func (m *mountRun) daemonCommand(log, ready *os.File) *exec.Cmd {
	cmd := exec.Command(m.executable())
	// A "--" may end the flags, so insert it directly after the name of the command.
	cmd.Args = slices.Insert(slices.Clone(m.Args), 2, "--ready-fd=3")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// awaitReady reads the daemon's message. If the context ends first, it asks the daemon to
// exit, and waits for it: the daemon cleans up after itself.
func awaitReady(ctx context.Context, cmd *exec.Cmd, from io.Reader) (readyMessage, error) {
	var msg readyMessage
	got := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(from).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &msg)
		}
		got <- err
	}()
	select {
	case err := <-got:
		return msg, err
	case <-ctx.Done():
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // an error means that it has already ended
		err := <-got
		msg.Ready = false
		return msg, err
	}
}

// isHelper reports whether the program was called by mount(8), as mount.hmcfs.
func isHelper(args []string) bool {
	return len(args) > 0 && filepath.Base(args[0]) == helperName
}
