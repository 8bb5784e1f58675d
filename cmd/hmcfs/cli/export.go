package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/share"
)

// exportEnv is the environment variable with the description of the export for a command.
const exportEnv = "HMCFS_EXPORT"

type exportFlags struct {
	kind        string
	pid         int
	end, asJSON bool
}

func (a *app) exportVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [--json] [--kind KIND] [--pid PID | --end] FILE [-- COMMAND [ARG]...]",
		Short: "Export a file's memory to another process",
		Long: "Print what another process needs to map the memory behind FILE without a copy. Content that is\n" +
			"spread over several allocations is first moved into one. An exported file cannot be truncated:\n" +
			"that fails with EBUSY. FILE may be one tensor of a file, M.safetensors.tensors/NAME.npy: the output\n" +
			"then names the tensor's part of the memory.\n\n" +
			"With COMMAND, run it with the memory's descriptor as number 3, and with the JSON of --json, in\n" +
			"which the descriptor is 3, in the environment variable " + exportEnv + ". The export ends with\n" +
			"COMMAND, and hmcfs exits with its exit code.\n\n" +
			"Otherwise the export lasts until the process of --pid ends, or until --end, which ends all exports\n" +
			"of FILE. Another process keeps what it has mapped, as long as the vendor's library permits.",
		Example: "  hmcfs export /mnt/hmc/cuda0/kv --json --pid 4711\n" +
			"  hmcfs export /mnt/hmc/host/a.bin -- \\\n    python3 -c 'import mmap; print(mmap.mmap(3, 0)[:16])'\n" +
			"  hmcfs export --end /mnt/hmc/cuda0/kv",
	}
	f := &exportFlags{}
	cmd.Flags().StringVar(&f.kind, "kind", "", "Kind of handle: ipc, vmm-fd or memfd. Default: the best that the device supports.")
	cmd.Flags().IntVar(&f.pid, "pid", 0, "Process that holds the export, which ends with it.")
	cmd.Flags().BoolVar(&f.end, "end", false, "End all exports of FILE.")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "Print JSON for hmcfs bind --handle. Fields are only ever added.")
	completeWith(cmd, "kind", string(devices.HandleIPC), string(devices.HandleVMM), string(devices.HandleMemfd))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); dash == 1 && len(args) > 1 {
			return nil
		}
		return arguments(1, 1, "one FILE, and COMMAND only after --")(cmd, args)
	}
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.export(ctx, args[0], args[1:], f)
	})
}

func (a *app) export(ctx context.Context, file string, command []string, f *exportFlags) error {
	switch {
	case f.pid < 0:
		return usage(fmt.Errorf("--pid %d is not a process ID", f.pid))
	case f.end && (f.pid != 0 || f.kind != "" || f.asJSON):
		return usage(errors.New("--end ends every export; it cannot be combined with --pid, --kind or --json"))
	case len(command) > 0 && (f.pid != 0 || f.end || f.asJSON):
		return usage(errors.New("--pid, --end and --json cannot be combined with a COMMAND, which holds the export itself"))
	}
	c, at, err := client.Find(file)
	if err != nil {
		return a.shareFault("export", file, err)
	}
	defer func() { _ = at.Close() }() // it only names the file
	switch {
	case f.end:
		if err = c.EndExports(ctx, at); err != nil {
			return a.shareFault("end the exports of", file, err)
		}
		return nil
	case len(command) > 0:
		e, xerr := c.Export(ctx, at, devices.HandleKind(f.kind))
		if xerr != nil {
			return a.shareFault("export", file, xerr)
		}
		_ = at.Close() // open, it would keep the mount busy
		return errors.Join(a.runWith(ctx, e, command), e.Close())
	}
	memory, err := c.Handle(ctx, at, devices.HandleKind(f.kind), f.pid)
	if err != nil {
		return a.shareFault("export", file, err)
	}
	if f.asJSON {
		return printJSON(a.Stdout, memory)
	}
	return printExport(a.Stdout, file, memory)
}

func printExport(w io.Writer, file string, m share.Memory) error {
	field(w, "file", file)
	field(w, "family", m.Family)
	fieldIf(w, "device", m.Device)
	field(w, "size", fmt.Sprintf("%d (%v)", m.Size, m.Size))
	fieldIf(w, "dtype", m.Dtype)
	fieldIf(w, "shape", m.Shape)
	fieldIf(w, "blobs", m.Blobs)
	if m.PID != 0 {
		field(w, "process", m.PID)
	}
	t := newTable(w, "  KIND", "OFFSET", "SIZE", "HANDLE")
	for _, p := range m.Pieces {
		t.row("  "+string(p.Kind), uint64(p.Offset), uint64(p.Size), handleText(m.PID, p))
	}
	return t.Flush()
}

// handleText returns the text that identifies a piece.
func handleText(pid int, p share.Piece) string {
	switch {
	case p.Path != "":
		return p.Path
	case p.FD != nil:
		// There is no path: descriptors of device memory can't be opened by one.
		return fmt.Sprintf("descriptor %d of process %d", *p.FD, pid)
	}
	return p.Handle
}

// inherited is the number of the first descriptor that a command inherits besides its
// standard streams.
const inherited = 3

func (a *app) runWith(ctx context.Context, e *client.Export, command []string) error {
	for i := range e.Memory.Pieces {
		if e.Memory.Pieces[i].FD != nil {
			number := inherited
			e.Memory.Pieces[i].FD = &number
		}
	}
	text, err := json.Marshal(e.Memory)
	if err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.Stdin, fileOf(a.Stdout), fileOf(a.Stderr)
	cmd.Env = append(os.Environ(), exportEnv+"="+string(text))
	if e.File != nil {
		cmd.ExtraFiles = []*os.File{e.File}
	}
	// The command receives the same signal as this process, instead of SIGKILL.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.Signal(a.signal.Load())) }
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return &codeError{code: codeOf(ended), err: errSilent}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("run %s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// codeOf returns a command's exit code or, as a shell does, 128 plus the number of the
// signal that ended it.
func codeOf(e *exec.ExitError) int {
	if st, ok := e.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return exitSignal + int(st.Signal())
	}
	return e.ExitCode()
}
