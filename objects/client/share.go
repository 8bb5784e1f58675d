package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// Bind makes memory that a process owns the content of the empty file at path, without a copy.
// The memory's descriptors are passed to the daemon: the fd of a piece is the index of its
// descriptor among them. They remain the caller's, and may be closed afterwards. Without
// descriptors, fd is a descriptor number in the process memory.PID.
//
// If the daemon dies meanwhile and its holder starts it again, Bind waits for that, and asks again unless the file is bound to as much
// memory by then.
//
// The caller must be allowed to read and write the file. Memory.PID is the process whose exit
// makes the file lost; 0 means none, if a descriptor keeps the memory alive.
//
// Errors: ErrNotMounted, ErrNoDaemon, and an *Error with the daemon's text.
func Bind(ctx context.Context, path string, memory share.Memory, descriptors ...*os.File) (adminapi.BindAnswer, error) {
	c, f, err := Find(path)
	if err != nil {
		return adminapi.BindAnswer{}, fmt.Errorf("bind %s: %w", path, err)
	}
	bound, err := c.Bind(ctx, f, memory, descriptors...)
	if err = errors.Join(err, f.Close()); err != nil {
		return adminapi.BindAnswer{}, fmt.Errorf("bind %s: %w", path, err)
	}
	return bound, nil
}

// OpenExport names the memory of the file at path for this process, which must close the
// export. See Client.Export.
func OpenExport(ctx context.Context, path string, kind devices.HandleKind) (*Export, error) {
	c, f, err := Find(path)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", path, err)
	}
	e, err := c.Export(ctx, f, kind)
	if err = errors.Join(err, f.Close()); err != nil {
		if e != nil {
			err = errors.Join(err, e.Close())
		}
		return nil, fmt.Errorf("export %s: %w", path, err)
	}
	return e, nil
}

// Bind makes memory the content of an empty file, identified by any descriptor of it: one from
// os.Open, or from Find. See the function Bind.
func (c *Client) Bind(ctx context.Context, file *os.File, memory share.Memory, descriptors ...*os.File) (bound adminapi.BindAnswer, err error) {
	asked := false
	err = c.asked(ctx, func(s *Session) (failure error) {
		if asked { // the daemon that has died may have done it
			if bound, failure = boundBefore(file, memory.Size); failure != nil || bound.State != "" {
				return failure
			}
		}
		asked = true
		files := append([]*os.File{file}, descriptors...)
		return s.request(ctx, frames.RequestBind, adminapi.BindRequest{Memory: memory}, files, &bound)
	})
	return bound, err
}

const (
	// stateBound is the state of a file that is memory of another process.
	stateBound = "bound"
	// xattrRoom is more, in bytes, than the attributes have that boundBefore reads.
	xattrRoom = 256
)

// boundBefore returns what Bind answered for a file that is bound to as much memory; the zero answer for others, of which the daemon
// says what is wrong.
func boundBefore(file *os.File, size devices.Size) (bound adminapi.BindAnswer, err error) {
	number, err := numberOf(file)
	if err != nil {
		return bound, err
	}
	at := "/proc/self/fd/" + strconv.Itoa(number) // O_PATH descriptors have no attributes of their own
	state, err := xattrOf(at, "user.hmc.state")
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || err == nil && state != stateBound {
		return bound, nil
	}
	device, derr := xattrOf(at, "user.hmc.device")
	info, serr := os.Stat(at)
	if err = errors.Join(err, derr, serr); err != nil {
		return bound, fmt.Errorf("see whether the file is bound: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && devices.Size(st.Size) == size {
		bound = adminapi.BindAnswer{Ino: metadata.Ino(st.Ino), Device: metadata.DeviceName(device), Size: size, State: stateBound}
	}
	return bound, nil
}

// xattrOf returns an attribute of a file.
func xattrOf(path, name string) (string, error) {
	value := make([]byte, xattrRoom)
	for {
		if n, err := unix.Getxattr(path, name, value); !errors.Is(err, unix.EINTR) {
			return string(value[:max(n, 0)]), err
		}
	}
}

// numberOf returns a descriptor's number in this process.
func numberOf(f *os.File) (number int, err error) {
	err = owner.Control(f, func(fd int) error {
		number = fd
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("descriptor %s: %w", f.Name(), err)
	}
	return number, nil
}

// Export is memory of a file that this process may use.
type Export struct {
	// Memory locates the memory in File, or has a vendor's handle.
	Memory share.Memory
	// File is the memory, for kinds that are descriptors; otherwise nil. Close closes it; a
	// duplicate made before that remains usable.
	File *os.File

	// held is the request that holds it.
	held *answer
	// alone is true if its session was opened for it.
	alone bool
}

// Export names the memory of a file for this process, as kind or, if that is empty, as the
// best kind of its device. The file can't be truncated until Close, or until this process
// exits. file may be any descriptor of the file; the caller must be allowed to read and write
// it.
//
// Errors: ErrNoDaemon, and an *Error with the daemon's text.
func (c *Client) Export(ctx context.Context, file *os.File, kind devices.HandleKind) (e *Export, err error) {
	err = c.opened(ctx, func(s *Session) (failure error) {
		e, failure = s.export(ctx, adminapi.ExportRequest{Kind: kind, Hold: true}, []*os.File{file})
		return failure
	})
	if err != nil {
		if e != nil {
			adminapi.CloseAll([]*os.File{e.File})
		}
		return nil, err
	}
	e.alone = true
	return e, nil
}

// export makes a request for an export that is held.
func (s *Session) export(ctx context.Context, q adminapi.ExportRequest, files []*os.File) (*Export, error) {
	a, p, err := s.begin(ctx, frames.RequestExport, q, files)
	if err != nil {
		return nil, err
	}
	e := &Export{held: a}
	err = json.Unmarshal(p.body, &e.Memory)
	if err != nil || p.kind != frames.KindPart || len(p.files) > 1 || e.Memory.Pieces == nil {
		adminapi.CloseAll(p.files)
		a.end()
		return nil, errors.Join(errAnswer, err)
	}
	if len(p.files) == 1 {
		e.File = p.files[0]
	}
	a.hold()
	return e, nil
}

// Close ends the export and closes File. It must be called once.
func (e *Export) Close() error {
	adminapi.CloseAll([]*os.File{e.File})
	if e.alone {
		return e.held.session.Close()
	}
	e.held.release()
	return nil
}

// Handle names the memory of a file as text, as user.hmc.handle does: for another process, and
// beyond the exit of this one. The export lasts until the process holder exits; for 0, until
// EndExports.
func (c *Client) Handle(ctx context.Context, file *os.File, kind devices.HandleKind, holder int) (m share.Memory, err error) {
	q := adminapi.ExportRequest{Kind: kind, Holder: holder, Text: true}
	err = c.asked(ctx, func(s *Session) error { return s.request(ctx, frames.RequestExport, q, []*os.File{file}, &m) })
	return m, err
}

// EndExports ends every export of a file, including those of other processes: it may then be
// truncated again.
func (c *Client) EndExports(ctx context.Context, file *os.File) error {
	var ended adminapi.EndAnswer
	return c.asked(ctx, func(s *Session) error {
		return s.request(ctx, frames.RequestExport, adminapi.ExportRequest{End: true}, []*os.File{file}, &ended)
	})
}
