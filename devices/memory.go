package devices

import (
	"fmt"
	"sync/atomic"
)

// Memory is the single owner of an allocation. It starts with one reference, and the device
// gets the bytes back when the last one is released.
//
// Retain and Release are safe for concurrent use. Releasing more often than retaining is a
// bug of the caller and panics: continuing would free memory that is in use elsewhere.
type Memory struct {
	device Device
	name   Name
	size   Size
	epoch  Epoch
	handle any
	free   func() error
	refs   atomic.Int64
}

// MemorySpec describes an allocation that a device returns.
type MemorySpec struct {
	Device Device
	Size   Size
	Epoch  Epoch
	// Handle is the device's identifier of the allocation, a pointer or an ID of a type of
	// the device's package.
	Handle any
	// Free frees the bytes. It is called once, after the last Release.
	Free func() error
}

// NewMemory returns a Memory. It is for implementations of Device.
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

// Epoch returns the incarnation of the device in which the memory was allocated.
func (m *Memory) Epoch() Epoch { return m.epoch }

// Handle returns the handle that the device's package set.
func (m *Memory) Handle() any { return m.handle }

// Retain adds a reference.
func (m *Memory) Retain() {
	if m.refs.Add(1) <= 1 {
		m.refs.Add(-1)
		panic(fmt.Errorf("devices: memory of %s retained after its last release", m.name))
	}
}

// Release drops a reference; the last one frees the bytes.
func (m *Memory) Release() error {
	left := m.refs.Add(-1)
	if left < 0 {
		panic(fmt.Errorf("devices: memory of %s released more often than retained", m.name))
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
		return Span{}, fmt.Errorf("range %v of %d bytes on %s: %w", r, uint64(m.size), m.name, ErrRange)
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
		return fmt.Errorf("memory of %s is of epoch %d, and the device is in epoch %d: %w", m.name, m.epoch, now, ErrLost)
	}
	return nil
}
