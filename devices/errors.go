package devices

import (
	"errors"
	"fmt"
)

// Errors that callers distinguish. Any other error of a device is ErrDevice.
var (
	ErrOutOfMemory = errors.New("devices: out of memory")
	ErrRange       = errors.New("devices: range outside the memory")
	ErrLost        = errors.New("devices: memory lost")
	ErrClosed      = errors.New("devices: closed")
	ErrDevice      = errors.New("devices: device failure")
	ErrUnsupported = errors.New("devices: not supported by this device")
	ErrNoDevice    = errors.New("devices: no such device")
	ErrForeign     = errors.New("devices: the files belong to other records")
	ErrHandle      = errors.New("devices: handle names no memory here")
)

// OutOfMemoryError reports how much memory was requested and how much is available. It is
// ErrOutOfMemory.
type OutOfMemoryError struct {
	Device Name
	Asked  Size
	Free   Size
}

// Error names the device, the amounts and the remedy.
func (e *OutOfMemoryError) Error() string {
	asked, free := e.Asked.String(), e.Free.String()
	if asked == free { // rounded, they would contradict the error
		asked, free = fmt.Sprintf("%d bytes", uint64(e.Asked)), fmt.Sprintf("%d bytes", uint64(e.Free))
	}
	return fmt.Sprintf("%s: out of memory: %s asked, %s free; remove files or mount with a larger size=", e.Device, asked, free)
}

// Is reports whether target is ErrOutOfMemory.
func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }
