package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/share"
)

// bindFlags are the flags that describe memory.
type bindFlags struct {
	handle, path, ipc, family, device string
	memfd, vmm, pid                   int
	offset, size                      string
	dtype, shape, blobs               string
}

func (a *app) bindVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bind FILE [--pid PID] (--handle JSON | --memfd FD | --vmm-fd FD | --ipc HEX | --path PATH) [flags]",
		Short: "Make another process's memory the content of a file",
		Long: "Bind FILE, which must exist and be empty, to memory of another process. Nothing is copied: what\n" +
			"one side writes the other reads, and rm only removes the binding. FILE must be in the directory\n" +
			"of the device that holds the memory: host/ or simN/ for a memfd or a file on a tmpfs. When the\n" +
			"process PID ends, FILE is lost. Only --path needs no --pid: that file stays bound until rm.\n\n" +
			"--handle takes the whole description that hmcfs export --json and the attribute user.hmc.handle\n" +
			"return: the JSON itself, @NAME to read it from a file, or - for standard input. Descriptors of\n" +
			"PID are duplicated with the privileges of the user who runs this command.",
		Example: "  hmcfs bind /mnt/hmc/host/weights --pid 4711 --memfd 5 \\\n    --dtype float32 --shape 1024,1024\n" +
			"  hmcfs bind /mnt/hmc/host/shm --path /dev/shm/ring --offset 4096\n" +
			"  hmcfs bind /mnt/hmc/cuda0/kv --pid 4711 --handle @kv.json",
		Args: arguments(1, 1, "one FILE"),
	}
	f := &bindFlags{}
	flags := cmd.Flags()
	flags.IntVar(&f.pid, "pid", 0, "Process that owns the memory.")
	flags.StringVar(&f.handle, "handle", "", "Whole description of the memory: JSON, @FILE, or - for standard input.")
	flags.IntVar(&f.memfd, "memfd", -1, "Descriptor number, in the process, of a memfd or of a file on a tmpfs.")
	flags.IntVar(&f.vmm, "vmm-fd", -1, "Descriptor number, in the process, of exported device memory; needs --size.")
	flags.StringVar(&f.ipc, "ipc", "", "IPC handle of the vendor, in hexadecimal; needs --size.")
	flags.StringVar(&f.path, "path", "", "Path of a file on a tmpfs.")
	flags.StringVar(&f.family, "family", "", "Device family, such as cuda. Default: that of FILE's directory.")
	flags.StringVar(&f.device, "device", "", "UUID of the card.")
	flags.StringVar(&f.offset, "offset", "0", "Offset in the allocation at which the content begins.")
	flags.StringVar(&f.size, "size", "", "Size of the content. Default: the rest of the memfd or file.")
	flags.StringVar(&f.dtype, "dtype", "", "Element type, such as float32.")
	flags.StringVar(&f.shape, "shape", "", "Shape of the tensor, such as 1024,1024.")
	flags.StringVar(&f.blobs, "blobs", "", "Sizes of the blobs, separated by commas.")
	asJSON := addJSON(cmd)
	completeWith(cmd, "family", familyNames()...)
	return runs(cmd, func(ctx context.Context, args []string) error {
		if err := oneSource(cmd); err != nil {
			return err
		}
		return a.bind(ctx, args[0], f, *asJSON)
	})
}

// oneSource checks that the memory is named exactly once.
func oneSource(cmd *cobra.Command) error {
	var given []string
	for _, name := range []string{"handle", "memfd", "vmm-fd", "ipc", "path"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch len(given) {
	case 1:
		return nil
	case 0:
		return usage(errors.New("no memory is named; give --handle, --memfd, --vmm-fd, --ipc or --path"))
	}
	return usage(fmt.Errorf("%s name the memory more than once; give one of them", strings.Join(given, " and ")))
}

func (a *app) bind(ctx context.Context, file string, f *bindFlags, asJSON bool) error {
	memory, err := f.memory(a.Stdin)
	if err != nil {
		return usage(err)
	}
	memory, files, err := collect(memory)
	defer adminapi.CloseAll(files)
	if err != nil {
		return fmt.Errorf("bind %s: %w", file, err)
	}
	c, at, err := client.Find(file)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bind %s: no such file; create it first, empty: touch %s", file, file)
	}
	if err != nil {
		return a.shareFault("bind", file, err)
	}
	defer func() { _ = at.Close() }() // it only names the file
	bound, err := c.Bind(ctx, at, memory, files...)
	if err != nil {
		return a.shareFault("bind", file, err)
	}
	if asJSON {
		return printJSON(a.Stdout, bound)
	}
	field(a.Stdout, "file", file)
	field(a.Stdout, "device", bound.Device)
	field(a.Stdout, "size", fmt.Sprintf("%d (%v)", bound.Size, bound.Size))
	field(a.Stdout, "state", bound.State)
	if memory.PID != 0 {
		field(a.Stdout, "lost with", fmt.Sprintf("process %d", memory.PID))
	}
	return nil
}

// shareFault describes a failure to bind or export: the file, the cause, the remedy.
func (a *app) shareFault(verb, file string, err error) error {
	if errors.Is(err, client.ErrNotMounted) {
		return notMounted("%s is not on an hmcfs mount", file)
	}
	return fmt.Errorf("%s %s: %w", verb, file, err)
}

// memory returns the memory that the flags describe.
func (f *bindFlags) memory(stdin io.Reader) (share.Memory, error) {
	if f.pid < 0 {
		return share.Memory{}, fmt.Errorf("--pid %d is not a process ID", f.pid)
	}
	var m share.Memory
	var err error
	if f.handle != "" {
		m, err = f.whole(stdin)
	} else {
		m, err = f.single()
	}
	if err != nil {
		return share.Memory{}, err
	}
	for flag, into := range map[*string]*string{
		&f.device: &m.Device, &f.dtype: &m.Dtype, &f.shape: &m.Shape, &f.blobs: &m.Blobs,
	} {
		if *flag != "" {
			*into = *flag
		}
	}
	if f.family != "" {
		m.Family = devices.Family(f.family)
	}
	if f.pid != 0 {
		m.PID = f.pid
	}
	for i, p := range m.Pieces {
		if m.PID == 0 && p.Path == "" {
			return share.Memory{}, fmt.Errorf("piece %d is memory of a process; name the process with --pid", i)
		}
	}
	return m, nil
}

// whole reads the description given by --handle.
func (f *bindFlags) whole(stdin io.Reader) (share.Memory, error) {
	text, from := []byte(f.handle), "--handle"
	var err error
	switch name, isFile := strings.CutPrefix(f.handle, "@"); {
	case isFile:
		from = name
		text, err = os.ReadFile(name)
	case f.handle == "-":
		from = "standard input"
		text, err = io.ReadAll(io.LimitReader(stdin, frames.MaxRequest+1))
	}
	if err != nil {
		return share.Memory{}, fmt.Errorf("read the handle: %w", err)
	}
	if f.size != "" || f.offset != "0" {
		return share.Memory{}, errors.New("--handle contains offset and size; omit --offset and --size")
	}
	var m share.Memory
	if err := adminapi.Unmarshal(text, &m); err != nil {
		return share.Memory{}, fmt.Errorf("%s: %w; use the output of hmcfs export --json", from, err)
	}
	return m, nil
}

// single returns the one piece that the short forms describe. Its size is 0 if the memory
// itself determines it.
func (f *bindFlags) single() (share.Memory, error) {
	p := share.Piece{Kind: devices.HandleMemfd, Path: f.path, Handle: f.ipc}
	switch {
	case f.memfd >= 0:
		p.FD = &f.memfd
	case f.vmm >= 0:
		p.Kind, p.FD = devices.HandleVMM, &f.vmm
	case f.ipc != "":
		p.Kind = devices.HandleIPC
	case f.path == "":
		return share.Memory{}, errors.New("a descriptor number must be 0 or more")
	default:
		abs, err := filepath.Abs(f.path)
		if err != nil {
			return share.Memory{}, fmt.Errorf("--path: %w", err)
		}
		p.Path = abs
	}
	offset, err := devices.ParseSize(f.offset)
	if err != nil {
		return share.Memory{}, fmt.Errorf("--offset: %w", err)
	}
	p.Offset = devices.Offset(offset)
	if f.size != "" {
		if p.Size, err = devices.ParseSize(f.size); err != nil {
			return share.Memory{}, fmt.Errorf("--size: %w", err)
		}
	}
	if p.Size == 0 && p.Kind != devices.HandleMemfd {
		return share.Memory{}, fmt.Errorf("a handle of kind %s does not include its size; give --size", p.Kind)
	}
	return share.Memory{Size: p.Size, Pieces: []share.Piece{p}}, nil
}
