package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// Daemon shares the memory of its files.
var _ admin.Sharer = (*Daemon)(nil)

// File returns the file that a request names, which the caller must be able to reach.
func (d *Daemon) File(ctx context.Context, by objects.Caller, named adminapi.File, shown *os.File) (metadata.Ino, error) {
	ino, err := d.inoOf(ctx, by, &admin.Named{File: named, Shown: shown})
	if err != nil || shown == nil {
		return ino, err
	}
	if _, _, ok := d.tensorOf(ino); ok {
		return ino, nil
	}
	// Other parts of views and the files of .hmcfs have inode numbers without a record.
	if _, err = d.store.Attr(ctx, ino); errors.Is(err, metadata.ErrNotExist) {
		return 0, fmt.Errorf("it has no memory of its own; name a file in a device's directory: %w", metadata.ErrNotExist)
	}
	return ino, err
}

// shownFile returns the file of a descriptor. The sender got it from the kernel, so the
// caller can reach the file; its current mode decides what the caller may do with it. The
// kernel answers this statx without asking the filesystem, which may be another one that
// never answers.
func (d *Daemon) shownFile(f *os.File) (metadata.Ino, error) {
	if d.opts.NoMount {
		return 0, fmt.Errorf("%s has no mount, so no descriptor is of a file there; name the file by its path: %w",
			d.opts.Places.MountPoint, objects.ErrInvalid)
	}
	var st unix.Statx_t
	err := owner.Control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st)
	})
	if err != nil {
		return 0, fmt.Errorf("the file's descriptor: %w", err)
	}
	if dev := fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor); dev != d.dev {
		return 0, fmt.Errorf("the first descriptor is of a file on device %s, not on %s (%s): %w",
			dev, d.opts.Places.MountPoint, d.dev, objects.ErrInvalid)
	}
	return metadata.Ino(st.Ino), nil
}

// Bind makes memory of another process the content of a file.
func (d *Daemon) Bind(ctx context.Context, ino metadata.Ino, by objects.Caller, r objects.BindRequest) (adminapi.BindAnswer, error) {
	if _, path, ok := d.tensorOf(ino); ok {
		objects.CloseHandles(r.Handles)
		return adminapi.BindAnswer{}, fmt.Errorf("%s is a tensor of a file, whose memory it is; bind to an empty file: %w", path, objects.ErrInvalid)
	}
	if r.Memory.Family == "" {
		dev, err := d.store.DeviceOf(ctx, ino)
		if err != nil {
			objects.CloseHandles(r.Handles)
			return adminapi.BindAnswer{}, err
		}
		r.Memory.Family = dev.Info.Family
	}
	if err := d.store.Bind(ctx, ino, by, r); err != nil {
		return adminapi.BindAnswer{}, err
	}
	a, err := d.store.Attr(ctx, ino)
	if err != nil {
		return adminapi.BindAnswer{}, err
	}
	out := adminapi.BindAnswer{Ino: ino, Device: a.Device, Size: devices.Size(a.Size), State: string(a.State)}
	out.Path, _ = d.meta.PathOf(ctx, ino) // an unlinked file has none
	return out, nil
}

// Export returns the handles of the memory of a file, or of a tensor of it, for another
// process.
func (d *Daemon) Export(ctx context.Context, ino metadata.Ino, by objects.Caller, o objects.ExportOptions) (objects.Exported, error) {
	if file, path, ok := d.tensorOf(ino); ok {
		ino, o.Tensor = file, path
	}
	return d.store.Export(ctx, ino, by, o)
}

// EndExports ends every export of a file, also of one of which a tensor is named.
func (d *Daemon) EndExports(ctx context.Context, ino metadata.Ino, by objects.Caller) error {
	if file, _, ok := d.tensorOf(ino); ok {
		ino = file
	}
	if err := d.mayUse(ctx, ino, by); err != nil {
		return err
	}
	err := d.store.EndExport(ctx, ino)
	if errors.Is(err, metadata.ErrNoXattr) {
		return fmt.Errorf("%w: it is not exported", objects.ErrInvalid)
	}
	return err
}

// mayUse returns an error unless a process may read and write a regular file according to
// its mode, as the kernel checks for a mount with default_permissions.
func (d *Daemon) mayUse(ctx context.Context, ino metadata.Ino, by objects.Caller) error {
	a, err := d.store.Attr(ctx, ino)
	switch {
	case err != nil:
		return err
	case !a.IsRegular():
		return fmt.Errorf("inode %d is not a regular file, and only regular files have memory: %w", ino, objects.ErrInvalid)
	case !by.May(&a.Inode, objects.PermRead|objects.PermWrite):
		return fmt.Errorf("inode %d has mode %o and belongs to user %d: user %d may not both read and write it: %w",
			ino, a.Mode.Perm(), a.UID, by.UID, objects.ErrForbidden)
	}
	return nil
}

// tensorOf returns the file, and the path in its view, of the tensor that an inode number is
// for; ok is false for any other inode.
func (d *Daemon) tensorOf(ino metadata.Ino) (file metadata.Ino, path string, ok bool) {
	return d.files.Tensor(ino)
}
