package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

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
	// mapped is memory to be unmapped when the session ends, that of this slot and of others.
	mapped [][]byte

	keys    [1]string
	blobs   []hetero.Blob
	lists   [1]hetero.DeviceBlobList
	results [1]hetero.Result
}

// values executes the Set and Get of a session.
type values struct {
	session *Session
	// free are the slots that no call uses.
	free chan *slot
	// before is the size of the last value that Get has looked up, and alike the one that it expects; 0 is none.
	before, alike atomic.Uint64
}

// newValues returns the values of a session, which registers memory for the slots at the first use.
func newValues(s *Session) *values {
	u := &values{session: s, free: make(chan *slot, slots)}
	u.free <- &slot{number: slots}
	return u
}

// place puts the blobs one after the other into registered memory.
func (v *slot) place(memory hetero.MemoryID, off devices.Offset) {
	for i := range v.blobs {
		v.blobs[i].Memory, v.blobs[i].Off = memory, off
		off += devices.Offset(v.blobs[i].Size)
	}
	v.lists[0] = hetero.DeviceBlobList{Device: hostDevice, Blobs: v.blobs}
}

// enter counts a value that is moved.
func (s *Session) enter() error {
	if err := s.ended(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return hetero.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// take waits for a slot. The caller gives it back.
func (u *values) take(ctx context.Context) (*slot, error) {
	if err := u.session.enter(); err != nil {
		return nil, err
	}
	v, err := u.next(ctx)
	if err == nil && v.bytes == nil {
		if err = u.makeSlots(ctx, v); err != nil {
			u.free <- v
		}
	}
	if err != nil {
		u.session.calls.Done()
		return nil, err
	}
	return v, nil
}

func (u *values) next(ctx context.Context) (*slot, error) {
	select {
	case v := <-u.free:
		return v, nil
	default:
	}
	select {
	case v := <-u.free:
		return v, nil
	case <-u.session.gone:
		return nil, u.session.ended()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: all %d values that a session moves at once are in progress", hetero.ContextError(ctx.Err()), slots)
	}
}

// give ends the use of a slot by a call with an error. One that the daemon may still access is replaced.
func (u *values) give(v *slot, err error) {
	if errors.Is(err, errLate) {
		v = &slot{number: 1, mapped: v.mapped}
	}
	u.free <- v
	u.session.calls.Done()
}

// makeSlots registers memory for a slot, and for others that are free from then on.
func (u *values) makeSlots(ctx context.Context, v *slot) error {
	n := v.number
	f, id, err := u.memoryFor(ctx, devices.Size(n)*slotSize)
	if err != nil {
		return err
	}
	all, err := mapped(f, n*slotSize)
	if err != nil {
		u.release(ctx, f, id)
		return fmt.Errorf("%w: %w", hetero.ErrNoMemory, err)
	}
	_ = f.Close() // the mapping keeps the memory
	v.mapped = append(v.mapped, all)
	for i := range n {
		at := i * slotSize
		one := v
		if i > 0 {
			one = &slot{}
		}
		one.bytes, one.memory, one.off = all[at:at+slotSize:at+slotSize], id, devices.Offset(at)
		if i > 0 {
			u.free <- one
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

// unmap frees the memory of all slots. No call is in progress, and none begins any more.
func (u *values) unmap() {
	for len(u.free) > 0 {
		v := <-u.free
		for _, all := range v.mapped {
			_ = unix.Munmap(all) // it is a whole mapping
		}
	}
}

// memoryFor creates and registers memory, without bytes so far. The caller releases it.
func (u *values) memoryFor(ctx context.Context, size devices.Size) (*os.File, hetero.MemoryID, error) {
	if _, err := u.session.present(ctx); err != nil {
		return nil, 0, err
	}
	f, err := share.Sealed("values", size)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", hetero.ErrNoMemory, err)
	}
	id, err := u.registerAll(ctx, f, size)
	if err == nil && ctx.Err() != nil {
		u.release(ctx, f, id)
		return nil, 0, hetero.ContextError(ctx.Err())
	}
	if err != nil {
		_ = f.Close() // the failure is returned
		return nil, 0, err
	}
	return f, id, nil
}

// registerAll registers all memory of a file.
func (u *values) registerAll(ctx context.Context, f *os.File, size devices.Size) (hetero.MemoryID, error) {
	place := 0
	id, err := u.session.PreRegister(ctx, hetero.Memory{Device: hostDevice, Files: []*os.File{f}, Share: &share.Memory{
		Family: hostDevice, Size: size, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &place, Size: size}},
	}})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", hetero.ContextError(ctx.Err()), err)
	}
	return id, err
}

// release ends the use of memory.
func (u *values) release(ctx context.Context, f *os.File, id hetero.MemoryID) {
	_ = f.Close() // its bytes were copied
	if ctx.Err() != nil || u.session.Unregister(ctx, id) != nil {
		go u.unregister(ctx, id)
	}
}

// unregister is Unregister for a caller that has gone, in a limited time. The session forgets the memory in any case.
func (u *values) unregister(ctx context.Context, id hetero.MemoryID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if u.session.Unregister(ctx, id) != nil {
		u.session.unremember(id)
	}
}
