package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the timeout for a helper to end on its own.
const patience = 20 * time.Second

// tool returns a command that runs one of the carried programs.
func (s *suite) tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	if name == "hmcfs" {
		return system(ctx, s.opts.hmcfs, args...)
	}
	return system(ctx, filepath.Join(s.opts.tools, name), args...)
}

// session is a helper that answers each line with a line.
type session struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	said  *strings.Builder
	ended bool
}

// talk starts a helper. The caller ends it.
func (s *suite) talk(ctx context.Context, name string, args ...string) (*session, error) {
	cmd := s.tool(ctx, name, args...)
	h := &session{cmd: cmd, said: new(strings.Builder)}
	cmd.Stderr = h.said
	// Nothing that the suite starts may outlive it, even if it crashes.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.in, h.out = in, bufio.NewReaderSize(out, 1<<16)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return h, nil
}

// ask sends a line and returns the answer.
func (h *session) ask(line string) (string, error) {
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		return "", errors.Join(fmt.Errorf("ask %q: %w", line, err), h.end())
	}
	answer, err := h.hear()
	if err != nil {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	return answer, nil
}

// hear reads the next line.
func (h *session) hear() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s gives no answer", filepath.Base(h.cmd.Path)), h.end())
	}
	return strings.TrimSpace(line), nil
}

// agree sends a line and accepts only the answer "ok".
func (h *session) agree(line string) error {
	answer, err := h.ask(line)
	if err == nil && answer != "ok" {
		err = fmt.Errorf("%s: %s: %s", filepath.Base(h.cmd.Path), line, answer)
	}
	return err
}

// disagree sends a line and accepts only a reported difference: a comparison that can't fail
// would prove nothing.
func (h *session) disagree(line string) error {
	answer, err := h.ask(line)
	if err == nil && !strings.HasPrefix(answer, "differs at 0:") {
		err = fmt.Errorf("%s: %s: %s, where the content is another", filepath.Base(h.cmd.Path), line, answer)
	}
	return err
}

// end closes the helper's input, which makes it exit. It may be called repeatedly.
func (h *session) end() error {
	if h.ended {
		return nil
	}
	h.ended = true
	err := h.in.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	late := time.AfterFunc(patience, func() { _ = h.cmd.Process.Kill() })
	defer late.Stop()
	if failed := h.cmd.Wait(); failed != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(h.cmd.Path), strings.Join(h.cmd.Args[1:], " "), failed,
			strings.TrimSpace(h.said.String()))
	}
	return err
}

// kill kills the helper, as a crash would.
func (h *session) kill() {
	h.ended = true
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // its status is the signal
}

// system returns a command that runs a program of the machine.
func system(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd
}
