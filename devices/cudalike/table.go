package cudalike

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// The vendor's names of things, which mean nothing on the host.
type (
	// address is a place in device memory.
	address = card.Address
	// stream is a queue of work of one device.
	stream uintptr
)

// binding has what a thread needs to work with one device.
type binding struct {
	ordinal int
	// handle is the vendor's context, 0 where the ordinal is enough.
	handle uintptr
}

// target is a destination in device memory.
type target struct {
	at address
	// room is the number of bytes of the allocation that lie at and behind it.
	room uint64
}

// table is a vendor's runtime in the words that all of them share. Functions
// below "thread" are called on a thread that has called set for the device,
// and not those above. An ability that the library lacks is nil.
type table struct {
	// library is the name that the library was found by.
	library string
	codes   codes
	// align is the alignment that the runtime gives an allocation, in bytes; 0 where it
	// does not say.
	align devices.Size
	// copyAlign is the number that both addresses of a copy inside the device must be
	// multiples of.
	copyAlign uint64

	// init makes the runtime ready. Calling it again is harmless.
	init  func() error
	count func() (int, error)
	name  func(ordinal int) (string, error)
	// pci tells the bus address; nil where the runtime does not.
	pci func(ordinal int) (string, error)
	// uuid names the card on any machine; nil where the runtime does not.
	uuid func(ordinal int) (string, error)
	// acquire makes a device ready for this process, release ends that. The
	// thread's device is unspecified afterwards.
	acquire func(ordinal int) (binding, error)
	release func(c binding) error
	// set chooses the calling thread's device.
	set func(c binding) error

	// From here on: thread.

	memory    func() (free, total uint64, err error)
	alloc     func(n uint64) (address, error)
	free      func(p address) error
	newStream func() (stream, error)
	endStream func(s stream) error
	// wait returns when all work of the stream is done.
	wait func(s stream) error
	// The moves begin on a stream. Host memory must stay as it is until the
	// stream has been waited for.
	in   func(dst target, src []byte, s stream) error
	out  func(dst []byte, src address, s stream) error
	copy func(dst target, src address, n uint64, s stream) error
	fill func(dst target, value byte, n uint64, s stream) error

	peer *peerTable
	ipc  *ipcTable
	pin  *pinTable
}

// peerTable has the calls by which a runtime copies between two devices.
type peerTable struct {
	// onSource says that the copy belongs to the source's thread and stream,
	// instead of the destination's.
	onSource bool
	// mutual says that access is enabled from each side.
	mutual bool
	// can says whether the worker, which the copy belongs to, reaches the
	// other device.
	can func(worker, other binding) (bool, error)
	// enable lets the thread's device reach the other; it is called before the
	// first copy. nil where the runtime does that by itself.
	enable func(other binding) error
	copy   func(dst target, dstDevice binding, src address, srcDevice binding, n uint64, s stream) error
}

// ipcTable has the calls by which a runtime names memory for other processes.
type ipcTable struct {
	// size is the number of bytes of a handle.
	size int
	// export names the allocation at p, of n bytes.
	export func(p address, n uint64) ([]byte, error)
	// unexport ends the name before the memory is freed; nil where a name
	// needs no end.
	unexport func(handle []byte) error
	// open maps what another process has named, close ends the mapping.
	open  func(handle []byte) (address, error)
	close func(handle []byte, p address) error
	// extent tells how long the allocation at p is; nil where the runtime does
	// not.
	extent func(p address) (uint64, error)
}

// pinTable has the calls by which a runtime locks host memory for its copies.
type pinTable struct {
	// align is the unit of both the address and the length.
	align    uintptr
	register func(p []byte) error
	// unregister takes what register took.
	unregister func(p []byte) error
}
