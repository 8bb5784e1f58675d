package client

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// Bind makes memory that a process owns the content of the empty file at path, without a copy.
// The memory's descriptors are passed to the daemon: the fd of a piece is the index of its
// descriptor among them. They remain the caller's, and may be closed afterwards. Without
// descriptors, fd is a descriptor number in the process memory.PID.
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
func (c *Client) Bind(ctx context.Context, file *os.File, memory share.Memory, descriptors ...*os.File) (adminapi.BindAnswer, error) {
	question := adminapi.BindRequest{Memory: memory, Descriptors: len(descriptors)}
	x, err := c.ask(ctx, adminapi.PathBind, "", question, append([]*os.File{file}, descriptors...))
	return partOf(x, err, func(r *adminapi.Reply) *adminapi.BindAnswer { return r.Bound })
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

// errAnswer reports that the daemon's answer has an unexpected form.
var errAnswer = errors.New("the daemon's answer lacks the requested data")

// Export is memory of a file that this process may use.
type Export struct {
	// Memory locates the memory in File, or has a vendor's handle.
	Memory share.Memory
	// File is the memory, for kinds that are descriptors; otherwise nil. Close closes it; a
	// duplicate made before that remains usable.
	File *os.File

	exchange *exchange
}

// Export names the memory of a file for this process, as kind or, if that is empty, as the
// best kind of its device. The file can't be truncated until Close, or until this process
// exits. file may be any descriptor of the file; the caller must be allowed to read and write
// it.
//
// Errors: ErrNoDaemon, and an *Error with the daemon's text.
func (c *Client) Export(ctx context.Context, file *os.File, kind devices.HandleKind) (*Export, error) {
	return c.export(ctx, adminapi.ExportRequest{Kind: kind, Hold: true}, []*os.File{file})
}

func (c *Client) export(ctx context.Context, q adminapi.ExportRequest, files []*os.File) (*Export, error) {
	x, err := c.ask(ctx, adminapi.PathExport, "", q, files)
	if err != nil {
		return nil, err
	}
	if x.reply.Memory == nil || len(x.files) > 1 {
		return nil, errors.Join(errAnswer, x.close())
	}
	e := &Export{Memory: *x.reply.Memory, exchange: x}
	if len(x.files) == 1 {
		e.File = x.files[0]
	}
	return e, nil
}

// Close ends the export and closes File. It must be called once.
func (e *Export) Close() error {
	if err := e.exchange.close(); err != nil {
		return fmt.Errorf("end an export: %w", err)
	}
	return nil
}

// Handle names the memory of a file as text, as user.hmc.handle does: for another process, and
// beyond the exit of this one. The export lasts until the process holder exits; for 0, until
// EndExports.
func (c *Client) Handle(ctx context.Context, file *os.File, kind devices.HandleKind, holder int) (share.Memory, error) {
	x, err := c.ask(ctx, adminapi.PathExport, "", adminapi.ExportRequest{Kind: kind, Holder: holder, Text: true}, []*os.File{file})
	return partOf(x, err, func(r *adminapi.Reply) *share.Memory { return r.Memory })
}

// EndExports ends every export of a file, including those of other processes: it may then be
// truncated again.
func (c *Client) EndExports(ctx context.Context, file *os.File) error {
	x, err := c.ask(ctx, adminapi.PathExport, "", adminapi.ExportRequest{End: true}, []*os.File{file})
	if err != nil {
		return err
	}
	_ = x.close() // the answer has been read
	return nil
}
