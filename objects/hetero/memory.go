package hetero

import (
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/share"
)

// MemoryID names memory that a client has registered. It has no meaning for other clients. 0
// is no memory.
type MemoryID uint64

// Memory describes the memory that PreRegister registers, by exactly one of Share, File, Local
// and Target.
type Memory struct {
	// Device is the name of the mount's device that has the memory: "host", "sim0", "cuda1".
	// It may be empty for a file of the mount.
	Device devices.Name
	// Share describes memory of this process, in the form that hmcfs bind accepts. Its pieces
	// are contiguous.
	Share *share.Memory
	// Files are the descriptors of Share's pieces: the FD of a piece is an index into this
	// slice. They remain the caller's, and may be closed after PreRegister.
	Files []*os.File
	// File is an open regular file in the mount, whose bytes are the memory: reads and writes
	// go through the object. It remains the caller's, and may be closed after PreRegister.
	File *os.File
	// Local is memory of a device of this process, for clients in the daemon's own process
	// only. The client retains it until it is unregistered.
	Local *devices.Memory
	// Target is not memory but an open regular file; ClaimOptions.Target describes its use. It
	// is in the mount, or has no name yet (O_TMPFILE). It remains the caller's, and may be
	// closed after PreRegister.
	Target *os.File
	// Number is the number that the memory had in an earlier process of the daemon, in a session that is
	// continued; 0 for new memory.
	Number MemoryID
}

// Check refuses a Memory that names no memory, or more than one, or no device if one is
// needed.
//
// Errors: ErrInvalid.
func (m *Memory) Check() error {
	named := 0
	for _, is := range []bool{m.Share != nil, m.File != nil, m.Local != nil, m.Target != nil} {
		if is {
			named++
		}
	}
	switch {
	case named != 1:
		return fmt.Errorf("%w: %d kinds of memory given; give exactly one", ErrInvalid, named)
	case m.Device == "" && m.File == nil && m.Target == nil:
		return fmt.Errorf("%w: no device given for the memory", ErrInvalid)
	case len(m.Files) > 0 && m.Share == nil:
		return fmt.Errorf("%w: descriptors given, but no pieces that refer to them", ErrInvalid)
	}
	return nil
}

// Blob is a range of registered memory.
type Blob struct {
	Memory MemoryID       `json:"memory"`
	Off    devices.Offset `json:"off"`
	// Size is the number of bytes, at least 1.
	Size devices.Size `json:"size"`
}

// DeviceBlobList is the memory of one key: its blobs in order, all on one device.
type DeviceBlobList struct {
	// Device is the device that all blobs are on.
	Device devices.Name `json:"device"`
	Blobs  []Blob       `json:"blobs"`
	// SourceOffset is the offset, in bytes, at which DevMGet starts to read in each blob of
	// the key, and DevFetch in the publication. It is 0 in all other calls, and never
	// negative.
	SourceOffset int64 `json:"source_offset,omitempty"`
}

// Size returns the sum of the blobs' sizes.
func (l DeviceBlobList) Size() devices.Size {
	var sum devices.Size
	for _, b := range l.Blobs {
		sum += b.Size
	}
	return sum
}

// MetaInfo is the answer of GetMetaInfo for one key.
type MetaInfo struct {
	Key string `json:"key"`
	// Err is the reason why the other fields are unset: ErrNotFound for a missing key.
	Err error `json:"-"`
	// Device is the device that has the object.
	Device devices.Name `json:"device"`
	// Blobs are the sizes of the blobs in order; their sum is Size.
	Blobs []devices.Size `json:"blobs"`
	Size  devices.Size   `json:"size"`
}
