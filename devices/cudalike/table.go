package cudalike

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// The vendor's identifiers of things, which are meaningless on the host.
type (
	// address is an address in device memory.
	address = card.Address
	// stream is a queue of work on one device.
	stream uintptr
)

// binding contains the data that a thread needs to work with one device.
type binding struct {
	ordinal int
	// handle is the vendor's context, 0 if the ordinal is sufficient.
	handle uintptr
}

// target is a destination in device memory.
type target struct {
	at address
	// room is the number of bytes of the allocation from there on.
	room uint64
}

// table is a vendor's runtime in the terms that all of them share. Functions below "thread"
// are called on a thread that has called set for the device, those above need not be. An
// ability that the library lacks is nil.
type table struct {
	// library is the name under which the library was found.
	library string
	codes   codes
	// align is the runtime's alignment of an allocation, in bytes; 0 if it is not
	// specified.
	align devices.Size
	// copyAlign is the required alignment, in bytes, of both addresses of a copy inside the
	// device.
	copyAlign uint64

	// init initializes the runtime. Calling it again is harmless.
	init  func() error
	count func() (int, error)
	name  func(ordinal int) (string, error)
	// pci returns the bus address; nil if the runtime does not provide it.
	pci func(ordinal int) (string, error)
	// uuid returns the globally unique ID of the card; nil if the runtime does not provide
	// it.
	uuid func(ordinal int) (string, error)
	// acquire makes a device ready for this process, release undoes that. The thread's
	// current device is unspecified afterwards.
	acquire func(ordinal int) (binding, error)
	release func(c binding) error
	// set makes a device current for the calling thread.
	set func(c binding) error

	// From here on: thread.

	memory    func() (free, total devices.Size, err error)
	alloc     func(n uint64) (address, error)
	free      func(p address) error
	newStream func() (stream, error)
	endStream func(s stream) error
	// wait returns when all work of the stream is done.
	wait func(s stream) error
	// These functions start a copy or fill on a stream. Host memory must not be modified
	// until the stream has been waited for.
	in   func(dst target, src []byte, s stream) error
	out  func(dst []byte, src address, s stream) error
	copy func(dst target, src address, n uint64, s stream) error
	fill func(dst target, value byte, n uint64, s stream) error

	peer *peerTable
	ipc  *ipcTable
	pin  *pinTable
}

// peerTable contains the functions by which a runtime copies between two devices.
type peerTable struct {
	// onSource is set if the copy belongs to the source's thread and stream instead of the
	// destination's.
	onSource bool
	// mutual is set if access has to be enabled from each side.
	mutual bool
	// can reports whether the worker, the device that the copy belongs to, can access the
	// other device.
	can func(worker, other binding) (bool, error)
	// enable gives the thread's device access to the other; it is called before the first
	// copy. nil if the runtime needs no such call.
	enable func(other binding) error
	copy   func(dst target, dstDevice binding, src address, srcDevice binding, n uint64, s stream) error
}

// ipcTable contains the functions by which a runtime shares memory with other processes.
type ipcTable struct {
	// size is the number of bytes of a handle.
	size int
	// export returns a handle for the allocation at p, of n bytes.
	export func(p address, n uint64) ([]byte, error)
	// unexport revokes the handle before the memory is freed; nil if that is not required.
	unexport func(handle []byte) error
	// open maps memory that another process has exported, close ends the mapping.
	open  func(handle []byte) (address, error)
	close func(handle []byte, p address) error
	// extent returns the size of the allocation at p in bytes; nil if the runtime does not
	// provide it.
	extent func(p address) (uint64, error)
}

// pinTable contains the functions by which a runtime locks host memory for its copies.
type pinTable struct {
	// align is the required alignment, in bytes, of both the address and the length.
	align    uintptr
	register func(p []byte) error
	// unregister receives the same memory as register.
	unregister func(p []byte) error
}
