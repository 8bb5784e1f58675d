package devices

import (
	"fmt"
	"sync/atomic"
)

// Memory is the one owner of an allocation. It begins with one reference,
// and the device gets the bytes back when the last one is released.
//
// Retain and Release may be called from any goroutine. Releasing more often
// than retaining is a bug of the caller and panics: going on would free
// memory that somebody else uses.
type Memory struct {
	device Device
	name   Name
	size   Size
	epoch  Epoch
	handle any
	free   func() error
	refs   atomic.Int64
}

// MemorySpec describes an allocation that a device hands out.
type MemorySpec struct {
	Device Device
	Size   Size
	Epoch  Epoch
	// Handle is the device's own name for the allocation, a pointer or an id
	// in a type of its package.
	Handle any
	// Free gives the bytes back. It is called once, after the last Release.
	Free func() error
}

// NewMemory is for implementations of Device.
func NewMemory(spec MemorySpec) *Memory {
	m := &Memory{
		device: spec.Device,
		name:   spec.Device.Info().Name,
		size:   spec.Size,
		epoch:  spec.Epoch,
		handle: spec.Handle,
		free:   spec.Free,
	}
	m.refs.Store(1)
	return m
}

// Device returns the device that the memory belongs to.
func (m *Memory) Device() Device { return m.device }

// Size returns the length in bytes.
func (m *Memory) Size() Size { return m.size }

// Epoch returns the incarnation of the device that the memory was taken in.
func (m *Memory) Epoch() Epoch { return m.epoch }

// Handle returns what the device's own package put in.
func (m *Memory) Handle() any { return m.handle }

// Retain adds a reference.
func (m *Memory) Retain() {
	if m.refs.Add(1) <= 1 {
		m.refs.Add(-1)
		panic(fmt.Errorf("devices: memory of %s retained after its last release", m.name))
	}
}

// Release drops a reference and, with the last one, gives the bytes back.
func (m *Memory) Release() error {
	left := m.refs.Add(-1)
	if left < 0 {
		panic(fmt.Errorf("devices: memory of %s released too often", m.name))
	}
	if left > 0 || m.free == nil {
		return nil
	}
	if err := m.free(); err != nil {
		return fmt.Errorf("free %v on %s: %w", m.size, m.name, err)
	}
	return nil
}

// Span returns the part r of the memory.
func (m *Memory) Span(r Range) (Span, error) {
	if !r.Within(m.size) {
		return Span{}, fmt.Errorf("%v of %d bytes on %s: %w", r, uint64(m.size), m.name, ErrRange)
	}
	return Span{Mem: m, Range: r}, nil
}

// All returns the whole memory as a span.
func (m *Memory) All() Span {
	return Span{Mem: m, Range: Range{Len: m.size}}
}

func (m *Memory) alive() error {
	if m.refs.Load() <= 0 {
		return fmt.Errorf("memory of %s used after its release: %w", m.name, ErrClosed)
	}
	if now := m.device.Epoch(); m.epoch != now {
		return fmt.Errorf("memory of %s is of epoch %d, the device is in %d: %w", m.name, m.epoch, now, ErrLost)
	}
	return nil
}
