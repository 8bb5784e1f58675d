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
	// unfinishedTouch is the interval at which the time to live of a file in the
	// mount that is being filled is renewed, to objects.UnfinishedTTL.
	unfinishedTouch = 10 * time.Second
	// unfinished begins the names of files that are being filled elsewhere.
	unfinished = ".hmcfs-unfinished-*"

	pathXattr = "user.hmc.path"
	ttlXattr  = "user.hmc.ttl"
)

// errReserved says that another subscriber has reserved what was there.
var errReserved = errors.New("another subscriber is receiving it")

// delivery is one publication on its way to a target: it is reserved, its bytes
// are copied, the target gets its name, and the publication is received. What
// ends in between, this process included, leaves it published and no target.
type delivery struct {
	*subscription

	row *keyRow
	// mode is that of a target that is made.
	mode fs.FileMode
	size int64
}

// run delivers to where the row says. inside is for a target in the mount.
func (d *delivery) run(ctx context.Context, inside bool) error {
	if d.row.Path == standardStream {
		return d.stream(ctx, d.a.out())
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

// resolve is the path to write, behind symlinks where it is to be replaced.
// special says that it is no regular file, which is written as it is.
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

// claim reserves the publication, without waiting for another one who has. The
// caller ends that with settle, or by the
// session's end.
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

// giveBack offers the publication again unless it was received.
func (d *delivery) giveBack(ctx context.Context) {
	_ = d.c.DevSettle(context.WithoutCancel(ctx), d.row.Key, false) // the session's end does it too
}

// stream writes to what takes bytes and has no name to be given.
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

// writtenError is a failure after bytes were written to what can't take them
// back: another attempt would write them again.
type writtenError struct{ error }

func (e *writtenError) Unwrap() error { return e.error }

// pour writes all bytes.
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
	d.row.Bytes, err = copier.Drain(ctx, w, copier.Source{Name: d.row.Key, ReaderAt: readAt(read), Size: d.size},
		copier.Options{Buffer: b.size, Moved: d.r.bar.add})
	return err
}

// outside delivers to a file of another file system: it has no name before its
// bytes are there, so that nothing is left of it otherwise.
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
	defer func() { _ = f.Close() }() // what matters was flushed
	id, err := d.c.PreRegister(ctx, hetero.Memory{Target: f})
	if err != nil {
		return err
	}
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // the session's end does it too
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

// link gives a file without a name its name.
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

// named is outside for a file system that has no files without names: a kill
// can leave an unfinished one, and between its name and the end the object and
// the publication.
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
		_ = os.Remove(f.Name()) // it has no use
		return err
	}
	return d.received(ctx, path)
}

// fill writes all bytes to a file, for which the room is taken before, and
// flushes them.
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
	// A file system may tell of a failure when a descriptor is closed.
	second, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(second)
	}
	if err != nil {
		return &os.PathError{Op: "close", Path: d.row.Path, Err: err}
	}
	return nil
}

// received ends the reservation when the target has its name. It must not stay
// when the publication is offered again.
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

// inside delivers a publication of another node to a file of the mount, into
// which the bytes come directly. It ends by its time to live if no subscriber
// goes on.
func (d *delivery) inside(ctx context.Context, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), objects.UnfinishedPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // its bytes came by another way
	if err = d.into(ctx, f, path); err != nil {
		_ = os.Remove(f.Name()) // it has no use
		return err
	}
	if err = d.received(ctx, path); err == nil {
		d.row.Way = xattr(path, pathXattr)
	}
	return err
}

// touch has an unfinished file stay for a while longer.
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
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // received needs it no more
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

// touching has a file stay until it is ended.
func touching(f *os.File) (end func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(unfinishedTouch)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = touch(f) // the rename tells whether it is there
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
	defer func() { _ = d.c.Unregister(context.WithoutCancel(ctx), id) }() // the session's end does it too
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
