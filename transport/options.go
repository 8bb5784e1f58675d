package transport

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

// The defaults of Options. doc.go explains how they were found.
const (
	DefaultChunkSize     = 256 * devices.KiB
	DefaultSlots         = 6
	DefaultMaxPinned     = 64 * devices.MiB
	DefaultMaxRegistered = 16 * devices.GiB
	DefaultRegisterFrom  = 4 * devices.MiB
)

// The bounds of Options.
const (
	minSlots     = 3
	maxSlots     = 64
	pageSize     = 4 * devices.KiB
	maxChunkSize = devices.GiB
)

// Options tunes an Engine. The zero value is valid: New fills in every default.
type Options struct {
	// ChunkSize is the size, in bytes, of one piece of a staged copy, a multiple
	// of 4 KiB. Small pieces stay in the processor's cache between their two
	// stages; large ones need fewer calls of the device. Default 256 KiB.
	ChunkSize devices.Size
	// Slots is the number of pinned slots that one staged copy keeps in flight, from 3
	// to 64: some being filled, some being emptied. Default 6.
	Slots int
	// MaxPinned limits the bytes of pinned slots that the pool holds, in use and
	// kept for reuse: at least Slots times ChunkSize, rounded up to a power of
	// two. Default 64 MiB.
	MaxPinned devices.Size
	// MaxRegistered limits the bytes of files' own pages that devices have
	// registered. The pages are memory of the tier already, so the limit bounds
	// what the devices need to access them. Default 16 GiB.
	MaxRegistered devices.Size
	// RegisterFrom is the smallest copy for which pages of a file are
	// registered. Default 4 MiB.
	RegisterFrom devices.Size
	// NoRegister turns registering off: every copy between a file and a device
	// that can't be mapped goes through slots.
	NoRegister bool
	// Enter moves the calling goroutine's thread to the processors of a NUMA node
	// until it calls leave: a staged copy runs on those of its device's node. Nil
	// leaves placement to the kernel.
	Enter func(node int) (leave func())
	// Near returns the NUMA node of the network card that has an address of this
	// machine, -1 if unknown: goroutines of a connection enter it. Nil means
	// unknown.
	Near func(local netip.Addr) (node int)
	// Listener is notified of every copy. A nil function is not called.
	Listener Listener
	// Logger receives a debug line for each failed copy; nil means no log.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields left at their zero value.
func (o *Options) EnsureDefaults() {
	o.ChunkSize = cmp.Or(o.ChunkSize, DefaultChunkSize)
	o.Slots = cmp.Or(o.Slots, DefaultSlots)
	o.MaxPinned = cmp.Or(o.MaxPinned, DefaultMaxPinned)
	o.MaxRegistered = cmp.Or(o.MaxRegistered, DefaultMaxRegistered)
	o.RegisterFrom = cmp.Or(o.RegisterFrom, DefaultRegisterFrom)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.Near == nil {
		o.Near = func(netip.Addr) int { return -1 }
	}
	if o.Enter == nil {
		o.Enter = func(int) func() { return func() {} }
	}
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.ChunkSize == 0 || o.ChunkSize%pageSize != 0 || o.ChunkSize > maxChunkSize {
		faults = append(faults, fmt.Errorf("transport: chunk size %d is not a multiple of 4 KiB up to %v", uint64(o.ChunkSize), maxChunkSize))
	}
	if o.Slots < minSlots || o.Slots > maxSlots {
		faults = append(faults, fmt.Errorf("transport: %d slots; use %d to %d", o.Slots, minSlots, maxSlots))
	}
	if need := devices.Size(max(o.Slots, 0)) * slotSize(min(o.ChunkSize, maxChunkSize)); o.MaxPinned < need {
		faults = append(faults, fmt.Errorf("transport: at most %v of pinned memory is less than %d slots of %v; use %v or more", o.MaxPinned, o.Slots, o.ChunkSize, need))
	}
	return errors.Join(faults...)
}

// String writes the options on one line, for the log.
func (o *Options) String() string {
	text := fmt.Sprintf("chunk-size=%v slots=%d max-pinned=%v", o.ChunkSize, o.Slots, o.MaxPinned)
	if o.NoRegister {
		return text + " max-registered=0"
	}
	return text + fmt.Sprintf(" max-registered=%v register-from=%v", o.MaxRegistered, o.RegisterFrom)
}
