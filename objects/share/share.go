package share

import "github.com/hmcfs/hmcfs/devices"

// Memory names the memory of one object for another process. Its JSON form is the same in both
// directions: the result of an export of one mount can be bound by another.
type Memory struct {
	// Family is the family of the device: "cuda", "host", "sim".
	Family devices.Family `json:"family"`
	// Device is the card's UUID, empty for host memory or if unknown.
	Device string `json:"device,omitempty"`
	// PID is the process that owns the memory. An object that is bound to it is lost when the
	// process exits.
	PID int `json:"pid,omitempty"`
	// Size is the object's size in bytes: the sum of the pieces.
	Size devices.Size `json:"size"`
	// Dtype, Shape and Blobs are the values of user.hmc.dtype, .shape and .blobs.
	Dtype string `json:"dtype,omitempty"`
	Shape string `json:"shape,omitempty"`
	Blobs string `json:"blobs,omitempty"`
	// Pieces are the parts of the object, in order, all on one device.
	Pieces []Piece `json:"pieces"`
}

// Piece is a part of one allocation.
type Piece struct {
	Kind devices.HandleKind `json:"kind"`
	// Handle is the vendor's handle in hexadecimal, for kind "ipc".
	Handle string `json:"handle,omitempty"`
	// FD is the descriptor's number in the process PID, for the kinds that are descriptors. If
	// descriptors are passed over the admin socket, it is an index into their list instead.
	FD *int `json:"fd,omitempty"`
	// Path names shared host memory instead of FD ("/dev/shm/x", "/proc/4711/fd/5").
	Path string `json:"path,omitempty"`
	// Offset and Size are the range within the allocation, in bytes.
	Offset devices.Offset `json:"offset"`
	Size   devices.Size   `json:"size"`
	// Allocation is the size of the whole allocation, if known.
	Allocation devices.Size `json:"allocation,omitempty"`
}
