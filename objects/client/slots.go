package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

const (
	// slotSize is the size, in bytes, of a slot, and slots their number in a session.
	slotSize, slots = 64 << 10, 32
	// hostDevice has the memory of values.
	hostDevice = "host"
)

// slot is used by one Set or Get at a time: memory for a small value, and for the call. It also entitles
// to memory of its own for a larger value, so that those have a bounded number of connections.
type slot struct {
	// bytes are registered memory; nil before it is registered, for a number of slots.
	bytes  []byte
	memory hetero.MemoryID
	off    devices.Offset
	number int

	keys    [1]string
	blobs   []hetero.Blob
	lists   [1]hetero.DeviceBlobList
	results [1]hetero.Result
}

// newSlots returns the slots of a session, which registers their memory at the first use.
func newSlots() chan *slot {
	free := make(chan *slot, slots)
	free <- &slot{number: slots}
	return free
}

// place puts the blobs one after the other into registered memory.
func (v *slot) place(memory hetero.MemoryID, off devices.Offset) {
	for i := range v.blobs {
		v.blobs[i].Memory, v.blobs[i].Off = memory, off
		off += devices.Offset(v.blobs[i].Size)
	}
	v.lists[0] = hetero.DeviceBlobList{Device: hostDevice, Blobs: v.blobs}
}

// takeSlot waits for a slot. The caller gives it back.
func (s *Session) takeSlot(ctx context.Context) (*slot, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	v, err := s.freeSlot(ctx)
	if err == nil && v.bytes == nil {
		if err = s.makeSlots(ctx, v); err != nil {
			s.free <- v
		}
	}
	if err != nil {
		s.calls.Done()
		return nil, err
	}
	return v, nil
}

func (s *Session) freeSlot(ctx context.Context) (*slot, error) {
	select {
	case v := <-s.free:
		return v, nil
	default:
	}
	select {
	case v := <-s.free:
		return v, nil
	case <-s.gone:
		return nil, s.ended()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: all %d values that a session moves at once are in progress", hetero.ContextError(ctx.Err()), slots)
	}
}

// giveSlot ends the use of a slot by a call with an error. One that the daemon may still access is replaced.
func (s *Session) giveSlot(v *slot, err error) {
	if errors.Is(err, errLate) {
		v = &slot{number: 1}
	}
	s.free <- v
	s.calls.Done()
}

// makeSlots registers memory for a slot, and for others that are free from then on.
func (s *Session) makeSlots(ctx context.Context, v *slot) error {
	n := v.number
	f, id, err := s.memoryFor(ctx, devices.Size(n)*slotSize)
	if err != nil {
		return err
	}
	all, err := mapped(f, n*slotSize)
	if err != nil {
		s.release(ctx, f, id)
		return fmt.Errorf("%w: %w", hetero.ErrNoMemory, err)
	}
	_ = f.Close() // the mapping keeps the memory
	s.mu.Lock()
	s.mapped = append(s.mapped, all)
	s.mu.Unlock()
	for i := range n {
		at := i * slotSize
		one := v
		if i > 0 {
			one = &slot{}
		}
		one.bytes, one.memory, one.off = all[at:at+slotSize:at+slotSize], id, devices.Offset(at)
		if i > 0 {
			s.free <- one
		}
	}
	return nil
}

func mapped(f *os.File, size int) ([]byte, error) {
	fd, err := numberOf(f)
	if err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// unmapSlots frees the memory of all slots. No call is in progress.
func (s *Session) unmapSlots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.mapped {
		_ = unix.Munmap(all) // it is a whole mapping
	}
	s.mapped = nil
}

// memoryFor creates and registers memory, without bytes so far. The caller releases it.
func (s *Session) memoryFor(ctx context.Context, size devices.Size) (*os.File, hetero.MemoryID, error) {
	if _, err := s.present(ctx); err != nil {
		return nil, 0, err
	}
	f, err := share.Sealed("values", size)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", hetero.ErrNoMemory, err)
	}
	id, err := s.registerAll(ctx, f, size)
	if err == nil && ctx.Err() != nil {
		s.release(ctx, f, id)
		return nil, 0, hetero.ContextError(ctx.Err())
	}
	if err != nil {
		_ = f.Close() // the failure is returned
		return nil, 0, err
	}
	return f, id, nil
}

// registerAll registers all memory of a file. It waits a while for the answer also when the context has ended:
// memory whose number is not known could not be unregistered.
func (s *Session) registerAll(ctx context.Context, f *os.File, size devices.Size) (hetero.MemoryID, error) {
	known, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(settling, cancel) })
	defer stop()
	place := 0
	id, err := s.PreRegister(known, hetero.Memory{Device: hostDevice, Files: []*os.File{f}, Share: &share.Memory{
		Family: hostDevice, Size: size, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &place, Size: size}},
	}})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", hetero.ContextError(ctx.Err()), err)
	}
	return id, err
}

// release ends the use of memory.
func (s *Session) release(ctx context.Context, f *os.File, id hetero.MemoryID) {
	_ = f.Close() // its bytes were copied
	if ctx.Err() != nil || s.Unregister(ctx, id) != nil {
		go s.unregister(ctx, id)
	}
}

// unregister is Unregister for a caller that has gone, in a limited time. The session forgets the memory in any case.
func (s *Session) unregister(ctx context.Context, id hetero.MemoryID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if s.Unregister(ctx, id) != nil {
		s.unremember(id)
	}
}
