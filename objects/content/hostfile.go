package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// HostFile is content in a file of the host tier. The kernel may read and write the file at
// the same time by passthrough, so the file alone knows its size and times.
//
// Devices may have registered the file's pages, also while it is not open. Operations that
// remove pages withdraw the registrations first.
type HostFile struct {
	tier   *Tier
	engine *transport.Engine
	id     uint64
	file   *os.File
}

// OpenHostFile opens the file of an object.
//
// Errors: fs.ErrNotExist.
func OpenHostFile(t *Tier, e *transport.Engine, id uint64) (*HostFile, error) {
	f, err := t.Files.Open(id, false)
	if err != nil {
		return nil, fmt.Errorf("open the host memory of object %d: %w", id, err)
	}
	return &HostFile{tier: t, engine: e, id: id, file: f}, nil
}

// CreateHostFile creates the file of an object that has none. A file that exists already
// under its number belongs to no object, and is set aside.
func CreateHostFile(t *Tier, e *transport.Engine, id uint64) (*HostFile, error) {
	f, err := t.Files.Open(id, true)
	if errors.Is(err, fs.ErrExist) {
		if err = t.Files.SetAside(id); err == nil {
			f, err = t.Files.Open(id, true)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create the host memory of object %d: %w", id, err)
	}
	return &HostFile{tier: t, engine: e, id: id, file: f}, nil
}

// Stat returns the file's attributes.
func (h *HostFile) Stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(h.file.Fd()), &st); err != nil {
		return st, fmt.Errorf("stat the host memory of object %d: %w", h.id, err)
	}
	return st, nil
}

func (h *HostFile) span(off, n uint64) transport.Span {
	return transport.FileSpan(devices.Name(h.tier.Name), h.file, int64(off), devices.Size(n)).Registrable()
}

// Find implements Content.
func (h *HostFile) Find(off, n uint64, sparse bool) (Range, error) {
	seen := Range{N: n}
	if sparse {
		whole, err := h.whole()
		if err != nil {
			return Range{}, err
		}
		sparse = !whole
	}
	if !sparse {
		seen.add(Piece{Off: off, N: n, Span: h.span(off, n)})
		return seen, nil
	}
	for end := off + n; off < end; {
		data, err := h.edge(off, end, unix.SEEK_DATA)
		if err != nil {
			return Range{}, err
		}
		if data > off {
			seen.add(Piece{Off: off, N: data - off, Hole: true})
			off = data
			continue
		}
		hole, err := h.edge(off, end, unix.SEEK_HOLE)
		if err != nil {
			return Range{}, err
		}
		seen.add(Piece{Off: off, N: hole - off, Span: h.span(off, hole-off)})
		off = hole
	}
	return seen, nil
}

// edge is seek, but at most to end, which it also returns if the file ends before.
func (h *HostFile) edge(off, end uint64, whence int) (uint64, error) {
	at, err := h.seek(off, whence)
	if errors.Is(err, unix.ENXIO) {
		return end, nil
	}
	return min(at, end), err
}

// whole reports whether the file has at least as much memory as its length, which saves
// looking for holes: the kernel walks over every page up to the next hole, and a copy asks
// again and again. Memory behind the end can hide a hole, which reads as zeros all the
// same.
func (h *HostFile) whole() (bool, error) {
	st, err := h.Stat()
	return st.Blocks*512 >= st.Size, err
}

// Next returns the offset of the first data, or the first hole, at or behind off. Memory
// that was reserved and never written is a hole.
//
// Errors: ErrNoData.
func (h *HostFile) Next(off uint64, hole bool) (uint64, error) {
	whence := unix.SEEK_DATA
	if hole {
		whence = unix.SEEK_HOLE
	}
	at, err := h.seek(off, whence)
	if errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("%w: %w", ErrNoData, err)
	}
	return at, err
}

// seek moves the descriptor's position, which nothing else uses.
func (h *HostFile) seek(off uint64, whence int) (uint64, error) {
	at, err := unix.Seek(int(h.file.Fd()), int64(off), whence)
	if err != nil {
		return 0, fmt.Errorf("seek in the host memory of object %d: %w", h.id, err)
	}
	return uint64(at), nil
}

// Write implements Content.
func (h *HostFile) Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error) {
	var done uint64
	var path transport.Path
	if err := h.room(off, uint64(src.Len())); err != nil {
		return 0, path, fmt.Errorf("write %v to host memory: %w", src.Len(), err)
	}
	pace := h.tier.paceOf(src)
	for total := uint64(src.Len()); done < total; {
		if err := ctx.Err(); err != nil {
			return done, path, err
		}
		n := min(total-done, pace.piece())
		from, err := src.Part(devices.Offset(done), devices.Size(n))
		if err != nil {
			return done, path, err
		}
		begin := time.Now()
		before := h.end(src)
		path, err = h.engine.Copy(ctx, h.span(off+done, n), from)
		if pace.took(n, time.Since(begin)); err != nil {
			return done, path, errors.Join(err, h.undo(ctx, src, before, off+done, n))
		}
		done += n
	}
	return done, path, nil
}

// end returns the file's length before bytes of another machine are written; 0 for other
// sources.
func (h *HostFile) end(src transport.Span) uint64 {
	if !src.IsRemote() {
		return 0
	}
	st, err := h.Stat()
	if err != nil {
		return 0
	}
	return uint64(st.Size)
}

// undo removes the bytes by which a failed copy of n bytes to off has extended the file:
// bytes of another machine may have arrived without those before them. Bytes that the
// kernel has written behind them meanwhile stay.
func (h *HostFile) undo(ctx context.Context, src transport.Span, before, off, n uint64) error {
	from := max(before, off)
	now := h.end(src)
	if !src.IsRemote() || now <= from {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if now <= off+n {
		return h.Cut(ctx, from)
	}
	return h.Clear(ctx, from, off+n-from, false)
}

// Cut implements Content.
func (h *HostFile) Cut(ctx context.Context, size uint64) error {
	release, err := h.withdraw(ctx, size, math.MaxInt64)
	if err != nil {
		return err
	}
	defer release()
	st, err := h.Stat()
	if err != nil {
		return err
	}
	resize := func() error {
		if err := h.file.Truncate(int64(size)); err != nil {
			return h.failed("truncate", err)
		}
		return nil
	}
	if uint64(st.Size) <= size {
		return resize()
	}
	return h.whileUnmapped(resize)
}

// whileUnmapped calls f, which takes pages out of the file, unless a process has locked the
// file (flock). Such a process has it mapped, possibly by an export of an earlier daemon, and
// an access to what is gone would kill it.
func (h *HostFile) whileUnmapped(f func() error) error {
	fd := int(h.file.Fd())
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("take pages from object %d in host memory: a process has mapped and locked it, and must close it first: %w", h.id, ErrBusy)
	}
	if err != nil {
		return h.failed("lock", err)
	}
	return errors.Join(f(), unix.Flock(fd, unix.LOCK_UN))
}

// Clear implements Content.
func (h *HostFile) Clear(ctx context.Context, off, n uint64, keep bool) error {
	if keep {
		return h.overwrite(ctx, off, n)
	}
	release, err := h.withdraw(ctx, off, n)
	if err != nil {
		return err
	}
	defer release()
	return h.whileUnmapped(func() error {
		mode := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
		if err := devices.Fallocate(int(h.file.Fd()), mode, devices.Offset(off), devices.Size(n)); err != nil {
			return h.failed("clear a range of", err)
		}
		return nil
	})
}

// Reserve implements Content.
func (h *HostFile) Reserve(_ context.Context, off, n uint64) error {
	if err := h.room(off, n); err != nil {
		return err
	}
	if err := devices.Fallocate(int(h.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, devices.Offset(off), devices.Size(n)); err != nil {
		return h.failed("reserve", err)
	}
	return nil
}

// withdraw keeps devices from registering the file until release, and waits for those that
// copy from or to the range: readers do not hold the lane.
func (h *HostFile) withdraw(ctx context.Context, off, n uint64) (release func(), err error) {
	release, err = h.engine.Withdraw(ctx, h.file, off, devices.Size(n))
	if err != nil {
		return nil, fmt.Errorf("host memory of object %d: %w", h.id, err)
	}
	return release, nil
}

// Share returns a descriptor for another process, which may truncate the file at any time:
// devices do not register its pages from then on.
func (h *HostFile) Share(ctx context.Context) (*os.File, error) {
	if err := h.engine.Share(ctx, h.file); err != nil {
		return nil, fmt.Errorf("share the host memory of object %d: %w", h.id, err)
	}
	return owner.Anew(h.file)
}

// failed wraps an error of the tmpfs; ENOSPC becomes devices.ErrOutOfMemory.
func (h *HostFile) failed(what string, err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s host memory: %w: %w", what, devices.ErrOutOfMemory, err)
	}
	return fmt.Errorf("%s the host memory of object %d: %w", what, h.id, err)
}

// SetTimes sets the file's times; nil leaves one unchanged.
func (h *HostFile) SetTimes(atime, mtime *metadata.Timespec) error {
	omit := unix.Timespec{Nsec: unix.UTIME_OMIT}
	ts := [2]unix.Timespec{omit, omit}
	for i, t := range []*metadata.Timespec{atime, mtime} {
		if t != nil {
			ts[i] = unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
		}
	}
	if err := utimensFd(int(h.file.Fd()), &ts); err != nil {
		return fmt.Errorf("set the times of object %d: %w", h.id, err)
	}
	return nil
}

// Usage implements Content.
func (h *HostFile) Usage() uint64 {
	st, err := h.Stat()
	if err != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}

// Settle implements Content.
func (h *HostFile) Settle(uint64) []metadata.Mapping { return nil }

// Discard implements Content.
func (h *HostFile) Discard() error {
	return errors.Join(RemoveHostFile(h.tier, h.engine, h.id), h.file.Close())
}

// Backing implements Content.
func (h *HostFile) Backing() *os.File { return h.file }

// RemoveHostFile removes the file of an object and frees its memory, which registrations
// of devices would keep.
func RemoveHostFile(t *Tier, e *transport.Engine, id uint64) error {
	st, ok, err := StatHostFile(t, id)
	if ok {
		e.Forget(transport.FileIDOf(st))
	}
	return errors.Join(err, t.Files.Remove(id))
}

// StatHostFile returns the attributes of the file of an object that is not open; ok is
// false when it has none yet.
func StatHostFile(t *Tier, id uint64) (st unix.Stat_t, ok bool, err error) {
	st, err = t.Files.Stat(id)
	if errors.Is(err, fs.ErrNotExist) {
		return st, false, nil
	}
	if err != nil {
		return st, false, fmt.Errorf("stat the host memory of object %d: %w", id, err)
	}
	return st, true, nil
}
