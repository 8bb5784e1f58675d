package faulty

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// Kind is the kind of an operation.
type Kind int

// The operations of a device and of its abilities.
const (
	Alloc Kind = iota
	Free
	CopyIn
	CopyOut
	Copy
	Fill
	Usage
	Map
	CopyPeer
	Pin
	OpenFile
	RemoveFile
	ListFiles
	ReserveFile
	Export
	Import
	Reduce
)

// String names the operation.
func (k Kind) String() string {
	names := [...]string{
		"alloc", "free", "copy in", "copy out", "copy", "fill", "usage", "map",
		"peer copy", "pin", "open file", "remove file", "list files", "reserve file",
		"export", "import", "reduce",
	}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("operation %d", int(k))
	}
	return names[k]
}

// Op is one operation that is about to happen.
type Op struct {
	Kind   Kind
	Device devices.Name
	// Bytes is the number of bytes moved, allocated or freed; 0 for other operations.
	Bytes devices.Size
	// Write reports whether it changes bytes or allocates memory; for Map, whether the view may
	// be written.
	Write bool
	// Host is the host's side of CopyIn and CopyOut, and nil for all others. It is valid only
	// until the hook returns.
	Host []byte
	// Seq numbers the operations of the device, from 1.
	Seq uint64
}

// Hook decides about an operation: nil lets it happen, an error becomes its result. An error
// that is not one of package devices is turned into an ErrDevice.
type Hook func(op Op) error

// EveryNth returns a hook that fails each n-th operation of a kind with err.
func EveryNth(n uint64, kind Kind, err error) Hook {
	var seen atomic.Uint64
	return func(op Op) error {
		if op.Kind == kind && seen.Add(1)%n == 0 {
			return err
		}
		return nil
	}
}

// known reports whether callers can identify the error.
func known(err error) bool {
	for _, sentinel := range []error{
		devices.ErrOutOfMemory, devices.ErrRange, devices.ErrLost, devices.ErrClosed,
		devices.ErrDevice, devices.ErrUnsupported, devices.ErrNoDevice, devices.ErrForeign,
		devices.ErrHandle,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
