package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// deliveryChunk is the number of bytes of a publication that one call copies.
	deliveryChunk = 16 * devices.MiB
	// unfinishedTouch is the interval at which the time to live of an unfinished file in
	// the mount is renewed, to objects.UnfinishedTTL.
	unfinishedTouch = 10 * time.Second
	// unfinished is the name pattern of unfinished files outside the mount.
	unfinished = ".hmcfs-unfinished-*"
)

// errReserved means that another subscriber has reserved the publication.
var errReserved = errors.New("another subscriber is receiving it")

// delivery delivers one publication to a target: it reserves the publication, copies the
// bytes, gives the target its name, and marks the publication as received. If it is
// interrupted in between, even by the end of this process, the publication stays published
// and there is no target.
type delivery struct {
	*subscription

	row *keyRow
	// mode is the mode of a new target.
	mode fs.FileMode
	size int64
}

// run delivers to the path of the row. inside is set for a target in the mount.
func (d *delivery) run(ctx context.Context, inside bool) error {
	if d.row.Path == standardStream {
		return d.stream(ctx, d.a.Stdout)
	}
	path, special, err := d.resolve(d.row.Path)
	switch {
	case err != nil:
		return err
	case special:
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(d.stream(ctx, f), f.Close())
	case inside:
		return d.inside(ctx, path)
	}
	return d.outside(ctx, path)
}

// resolve returns the path to write, with symlinks resolved if the target will be replaced.
// special is set for an existing target that is not a regular file, which is written in
// place.
//
// Errors: fs.ErrExist.
func (d *delivery) resolve(path string) (to string, special bool, err error) {
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err == nil && !d.force {
		err = fs.ErrExist
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", false, err
	}
	st, err := os.Stat(path)
	return path, err == nil && !st.Mode().IsRegular(), err
}

// claim reserves the publication, without waiting for another client that has reserved it.
// The caller ends the reservation with settle, or it ends with the session.
func (d *delivery) claim(ctx context.Context, target hetero.MemoryID) error {
	info, err := d.c.DevClaim(ctx, d.row.Key, hetero.ClaimOptions{Target: target})
	if errors.Is(err, hetero.ErrBusy) {
		return fmt.Errorf("%w: %w", errReserved, err)
	}
	if d.size = int64(info.Size); err == nil {
		d.r.bar.grow(d.size)
	}
	return err
}

// giveBack releases the reservation, so that the publication is offered again, unless it
// was received.
func (d *delivery) giveBack(ctx context.Context) {
	_ = d.c.DevSettle(context.WithoutCancel(ctx), d.row.Key, false) // the end of the session does it too
}

// stream writes to a target that receives bytes but gets no name afterwards.
func (d *delivery) stream(ctx context.Context, w io.Writer) error {
	if err := d.claim(ctx, 0); err != nil {
		return err
	}
	err := d.pour(ctx, w)
	if err != nil {
		d.giveBack(ctx)
	} else if err = d.c.DevSettle(context.WithoutCancel(ctx), d.row.Key, true); err != nil && d.row.Bytes > 0 {
		err = hinted(fmt.Errorf("all %d bytes are written, but it is unknown whether they count as received: %w", d.row.Bytes, err),
			"check with 'hmcfs ls-keys --published' whether it is offered again")
	}
	if err != nil && d.row.Bytes > 0 {
		return &writtenError{err}
	}
	return err
}

// writtenError is a failure after bytes were written to a target that cannot undo that:
// another attempt would write them again.
type writtenError struct{ error }

func (e *writtenError) Unwrap() error { return e.error }

func (d *delivery) pour(ctx context.Context, w io.Writer) error {
	if d.size == 0 {
		return ctx.Err()
	}
	b, err := d.newBuffer(ctx)
	if err != nil {
		return err
	}
	defer b.close(ctx)
	read := func(p []byte, off int64) (int, error) { return b.read(ctx, p, off) }
	d.row.Bytes, err = copier.Drain(ctx, w, copier.Source{Name: d.row.Key, ReadAt: read, Size: d.size},
		copier.Options{Buffer: b.size, Moved: d.r.bar.add})
	return err
}

// outside delivers to a file of another filesystem. The file gets a name only when its
// bytes are complete, so that nothing is left of it otherwise.
func (d *delivery) outside(ctx context.Context, path string) error {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		return d.named(ctx, path)
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // the data was flushed
	id, err := d.c.PreRegister(ctx, hetero.Memory{Target: f})
	if err != nil {
		return err
	}
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // the end of the session does it too
	if err = d.claim(ctx, id); err != nil {
		return err
	}
	if err = d.fill(ctx, f); err == nil {
		err = d.link(f, path)
	}
	if err != nil {
		d.giveBack(ctx)
		return err
	}
	return d.received(ctx, path)
}

// link gives a name to a file without one.
func (d *delivery) link(f *os.File, path string) error {
	for {
		err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			return nil
		}
		if !d.force || !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "create", Path: path, Err: err}
		}
		if err = os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// named is outside for a filesystem that has no files without names: a kill can leave an
// unfinished file or, between the rename and the end, both the target and the publication.
func (d *delivery) named(ctx context.Context, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	if err = d.claim(ctx, 0); err == nil {
		if err = d.fill(ctx, f); err == nil {
			err = rename(ctx, f.Name(), path, d.force)
		}
		if err != nil {
			d.giveBack(ctx)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // it is useless
		return err
	}
	return d.received(ctx, path)
}

// fill writes all bytes to a file, after allocating the space, and flushes them.
func (d *delivery) fill(ctx context.Context, f *os.File) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, max(d.size, 1))
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) {
		err = f.Truncate(d.size)
	}
	if err != nil {
		return &os.PathError{Op: "make room for", Path: d.row.Path, Err: err}
	}
	if err = d.pour(ctx, io.NewOffsetWriter(f, 0)); err == nil {
		err = f.Chmod(d.mode)
	}
	if err != nil {
		return err
	}
	// A filesystem may report an error only when a descriptor is closed.
	second, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(second)
	}
	if err != nil {
		return &os.PathError{Op: "close", Path: d.row.Path, Err: err}
	}
	return nil
}

// received marks the publication as received once the target has its name. If that fails
// and the publication is offered again, the target is removed.
func (d *delivery) received(ctx context.Context, path string) error {
	err := d.c.DevSettle(context.WithoutCancel(ctx), d.row.Key, true)
	switch {
	case errors.Is(err, hetero.ErrDisconnected):
		return hinted(fmt.Errorf("%s is written, but the node that published it does not answer: %w", path, err),
			"check with 'hmcfs ls-keys --published' whether it is offered again")
	case err != nil:
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// inside delivers a publication of another node to a file of the mount, into which the
// bytes are copied directly. If no subscriber continues, the unfinished file expires.
func (d *delivery) inside(ctx context.Context, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), objects.UnfinishedPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // its bytes were not written through it
	if err = d.into(ctx, f, path); err != nil {
		_ = os.Remove(f.Name()) // it is useless
		return err
	}
	if err = d.received(ctx, path); err == nil {
		d.row.Way = xattr(path, pathXattr)
	}
	return err
}

// touch extends the life of an unfinished file.
func touch(f *os.File) error {
	seconds := strconv.Itoa(int(objects.UnfinishedTTL / time.Second))
	return unix.Fsetxattr(int(f.Fd()), ttlXattr, []byte(seconds), 0)
}

// into fills a file of the mount and gives it its name.
func (d *delivery) into(ctx context.Context, f *os.File, path string) error {
	defer touching(f)()
	id, err := d.c.PreRegister(ctx, hetero.Memory{Target: f})
	if err != nil {
		return err
	}
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // received no longer needs it
	if err = d.claim(ctx, id); err != nil {
		return err
	}
	if err = f.Chmod(d.mode); err == nil && d.size > 0 {
		err = d.direct(ctx, f)
	}
	if err == nil {
		err = rename(ctx, f.Name(), path, d.force)
	}
	if err != nil {
		d.giveBack(ctx)
	}
	return err
}

// touching keeps an unfinished file alive until end is called.
func touching(f *os.File) (end func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(unfinishedTouch)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = touch(f) // the rename reports whether it still exists
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

// direct copies all bytes into a file of the mount.
func (d *delivery) direct(ctx context.Context, f *os.File) error {
	if err := f.Truncate(d.size); err != nil {
		return err
	}
	device := devices.Name(xattr(f.Name(), deviceXattr))
	id, err := d.c.PreRegister(ctx, hetero.Memory{Device: device, File: f})
	if err != nil {
		return err
	}
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // the end of the session does it too
	for off := int64(0); off < d.size; {
		n := min(int64(deliveryChunk), d.size-off)
		blob := hetero.Blob{Memory: id, Off: devices.Offset(off), Size: devices.Size(n)}
		list := hetero.DeviceBlobList{Device: device, Blobs: []hetero.Blob{blob}, SourceOffset: off}
		if err = d.c.DevFetch(ctx, d.row.Key, list); err != nil {
			return err
		}
		off += n
		d.r.bar.add(n)
	}
	d.row.Bytes = d.size
	return ctx.Err()
}
