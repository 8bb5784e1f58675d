package fs

import (
	"encoding/binary"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// Keeper keeps the descriptors of a mount, in a process that outlives this one. Its methods may be called from any
// goroutine.
type Keeper interface {
	devices.DescriptorStore
	// Write writes to a descriptor that is kept. An error means that it did not; what the kernel said of it is not
	// reported. Calls do not wait for each other.
	Write(name string, p []byte) error
}

// heldKernel has the keeper send the notifications for which the kernel waits: for pages that are being
// read, or for the lock of a directory that a request has. A process that is killed while one of its threads waits there
// can't die before another process has answered that read or request, which waits for its death.
type heldKernel struct {
	fuseKernel
	keeper Keeper
}

func (k heldKernel) InvalidateEntry(parent metadata.Ino, name string) {
	m := notification(notifyEntry, uint64(parent))
	m = binary.NativeEndian.AppendUint32(m, uint32(len(name)))
	m = binary.NativeEndian.AppendUint32(m, 0) // no flags
	m = append(append(m, name...), 0)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	if k.keeper.Write(heldDevice, m) != nil {
		k.fuseKernel.InvalidateEntry(parent, name)
	}
}

func (k heldKernel) InvalidatePages(ino metadata.Ino) { k.InvalidateRange(ino, 0, 0) }

func (k heldKernel) InvalidateRange(ino metadata.Ino, off, n uint64) {
	off, n = rangeOf(off, n)
	if k.keeper.Write(heldDevice, notification(notifyInode, uint64(ino), off, n)) != nil {
		k.fuseKernel.InvalidateRange(ino, off, n)
	}
}

// The numbers of notifications (fuse.h). notifyResend has the kernel send again what was read and not answered, and
// notifyEpoch ends all cached names (Linux 6.16).
const (
	notifyInode  = 2
	notifyEntry  = 3
	notifyResend = 7
	notifyEpoch  = 8
)

// notification returns a message to the kernel.
func notification(code uint32, words ...uint64) []byte {
	m := make([]byte, 16, 64)
	binary.NativeEndian.PutUint32(m[4:], code)
	for _, w := range words {
		m = binary.NativeEndian.AppendUint64(m, w)
	}
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}
