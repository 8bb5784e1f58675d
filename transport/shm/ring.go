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

// slots is the number of tags that may be on their way in one direction.
const slots = 4096

// ring is the memory of one direction, with the two bells of those who sleep.
// close comes when nobody uses it any more, but for those who sleep.
type ring struct {
	memory *os.File
	// filled wakes the receiver, emptied the sender.
	filled, emptied *os.File
	mapped          mapping
	at              *layout
}

// newRing takes the memory of a ring.
func newRing() (r *ring, err error) {
	r = &ring{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("take a ring: %w", err), r.close())
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

// openRing opens one of the peer. The files are the ring's if it succeeds.
func openRing(memory, filled, emptied *os.File) (*ring, error) {
	r := &ring{memory: memory, filled: filled, emptied: emptied}
	for _, bell := range []*os.File{filled, emptied} {
		// Only what Go's poller takes can be waited for with a deadline. An
		// eventfd is, and a file of a disk is not.
		if err := bell.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("the peer's bell: %w", err)
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

// close gives everything back, and wakes those who sleep.
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

// knock wakes whoever sleeps at a bell. A bell that can't be rung has been rung
// often enough.
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
			// It was another's context, who is gone.
			return bell.SetReadDeadline(time.Time{})
		}
		return ctx.Err()
	}
	return err
}
