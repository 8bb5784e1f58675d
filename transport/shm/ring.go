package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// slots is the number of tags that may be in transit in one direction.
const slots = 4096

// ring is the memory of one direction, with the two bells of the sleepers. close
// is called when only sleepers still use it.
type ring struct {
	memory *os.File
	// filled wakes the receiver, emptied the sender.
	filled, emptied *os.File
	mapped          mapping
	at              *layout
}

// newRing allocates the memory of a ring.
func newRing() (r *ring, err error) {
	r = &ring{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("allocate a ring: %w", err), r.close())
		}
	}()
	fd, err := unix.MemfdCreate("hmcfs-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return r, err
	}
	r.memory = os.NewFile(uintptr(fd), "memfd:hmcfs-ring")
	if err := unix.Ftruncate(fd, int64(layoutSize)); err != nil {
		return r, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return r, err
	}
	for _, bell := range []**os.File{&r.filled, &r.emptied} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return r, err
		}
		*bell = os.NewFile(uintptr(fd), "eventfd:hmcfs-ring")
	}
	return r, r.open()
}

// openRing opens a ring of the peer. The files belong to the ring if it succeeds.
func openRing(memory, filled, emptied *os.File) (*ring, error) {
	r := &ring{memory: memory, filled: filled, emptied: emptied}
	for _, bell := range []*os.File{filled, emptied} {
		// Only files that Go's poller accepts support deadlines. An eventfd does,
		// a file on a disk does not.
		if err := bell.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("use the peer's eventfd: %w", err)
		}
	}
	return r, r.open()
}

func (r *ring) open() (err error) {
	if r.mapped, err = mapFile(r.memory, 0, devices.Size(layoutSize), true); err != nil {
		return fmt.Errorf("map a ring: %w", err)
	}
	r.at = layoutAt(r.mapped.bytes)
	return nil
}

// close releases everything, and wakes the sleepers.
func (r *ring) close() error {
	var errs []error
	if r.at != nil {
		r.at = nil
		errs = append(errs, r.mapped.unmap())
	}
	for _, f := range []*os.File{r.memory, r.filled, r.emptied} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// knock wakes the sleeper at a bell. If the bell can't be rung, it has been rung
// already.
func knock(bell *os.File) {
	conn, err := bell.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.Write(int(fd), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
}

// sleep waits until a bell rings, the context ends, or the bell is closed. It
// may return early.
func sleep(ctx context.Context, bell *os.File) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = bell.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	var count [8]byte
	_, err := bell.Read(count[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if ctx.Err() == nil {
			// The deadline was set for the context of an earlier sleeper.
			return bell.SetReadDeadline(time.Time{})
		}
		return ctx.Err()
	}
	return err
}
