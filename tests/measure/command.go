package measure

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Command makes a command, such as exec.CommandContext.
type Command func(ctx context.Context, name string, args ...string) *exec.Cmd

// Output runs a command that has a context, at whose end it is told to end, and returns its
// standard output without blanks around it. An error has what the command said.
func Output(cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), err
}
