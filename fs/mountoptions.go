package fs

import (
	"os"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// capabilities returns the capabilities requested from the kernel beyond go-fuse's own.
//
//   - EXPORT_SUPPORT: LOOKUP of "." finds an inode by its number.
//   - DIRECT_IO_ALLOW_MMAP: shared maps of files opened for direct I/O.
//   - ASYNC_DIO: io_uring and libaio have several requests in flight.
//   - READDIRPLUS_AUTO: attributes are sent with names where they are used.
//   - HANDLE_KILLPRIV_V2: with each write, truncation and change of owner the kernel says
//     whether set-id bits must be cleared, instead of asking for security.capability before
//     each write (see changeOf).
//
// Not requested: ATOMIC_O_TRUNC saves one request for each overwritten file and would
// implement truncation in a second place; WRITEBACK_CACHE rules passthrough out; with
// DONT_MASK the daemon would have to apply the umask.
func capabilities() uint64 {
	return fuse.CAP_EXPORT_SUPPORT | fuse.CAP_DIRECT_IO_ALLOW_MMAP |
		fuse.CAP_ASYNC_DIO | fuse.CAP_READDIRPLUS_AUTO |
		fuse.CAP_HANDLE_KILLPRIV_V2
}

// fuseOptions converts the options for go-fuse.
func fuseOptions(o *Options, f *filesystem) *fuse.MountOptions {
	flags, rest := mountFlags(o.MountOptions)
	direct := os.Geteuid() == 0
	if !direct {
		rest = o.MountOptions
	}
	out := &fuse.MountOptions{
		AllowOther:        o.AllowOther,
		Options:           append([]string{"default_permissions"}, rest...),
		MaxBackground:     o.MaxBackground,
		MaxWrite:          int(o.MaxWrite),
		FsName:            "hmcfs",
		Name:              "hmcfs",
		DirectMountStrict: direct,
		DirectMountFlags:  flags,
		// Spliced answers were cut short under direct I/O.
		DisableSplice:     true,
		ExtraCapabilities: capabilities(),
		PanicHandler:      f.panicked,
		Debug:             o.Debug,
	}
	// go-fuse's lines are warnings, except for those that Debug asks for. An error is only
	// possible for a level that does not exist.
	level := zap.WarnLevel
	if o.Debug {
		level = zap.DebugLevel
	}
	if logger, err := zap.NewStdLogAt(f.log.Named("go-fuse"), level); err == nil {
		out.Logger = logger
	}
	return out
}

// mountFlags converts the options that mount(2) takes as bits to those bits, and returns
// the others.
func mountFlags(options []string) (flags uintptr, rest []string) {
	set := map[string]uintptr{
		"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV,
		"noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS,
		"dirsync": unix.MS_DIRSYNC, "noatime": unix.MS_NOATIME,
		"nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
		"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME,
	}
	cleared := map[string]uintptr{
		"rw": unix.MS_RDONLY, "suid": unix.MS_NOSUID, "dev": unix.MS_NODEV,
		"exec": unix.MS_NOEXEC, "async": unix.MS_SYNCHRONOUS,
		"atime": unix.MS_NOATIME,
	}
	// Like fusermount: files that users put into a mount grant no privilege.
	flags = unix.MS_NOSUID | unix.MS_NODEV
	for _, option := range options {
		switch {
		case set[option] != 0:
			flags |= set[option]
		case cleared[option] != 0:
			flags &^= cleared[option]
		case option == "defaults" || option == "default_permissions":
		default:
			rest = append(rest, option)
		}
	}
	if flags == 0 {
		flags = unix.MS_MGC_VAL // go-fuse replaces 0 with its own default
	}
	return flags, rest
}

// panicked answers EIO when a handler panics, so that the other requests continue.
func (f *filesystem) panicked(reason any) fuse.Status {
	f.log.Error("request handler panicked", zap.Any("reason", reason), zap.Stack("stack"))
	return fuse.EIO
}

// kernelMaxWrite returns the size of the largest request that the kernel sends.
func kernelMaxWrite() devices.Size {
	const pages = 256 // of kernels where it is fixed
	text, err := os.ReadFile("/proc/sys/fs/fuse/max_pages_limit")
	if err != nil {
		return pages * pageSize
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || n == 0 {
		return pages * pageSize
	}
	return devices.Size(n) * devices.Size(os.Getpagesize())
}
