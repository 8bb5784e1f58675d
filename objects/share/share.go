package share

import "github.com/hmcfs/hmcfs/devices"

// Memory names the memory of one object for another process. Its JSON form is
// the same in both directions: what Export of one mount says can be bound by
// another.
type Memory struct {
	// Family is the kind of device: "cuda", "host", "sim".
	Family devices.Family `json:"family"`
	// Device is the card's UUID, empty for host memory or where unknown.
	Device string `json:"device,omitempty"`
	// PID is the process that owns the memory. An object that is bound to it
	// is lost when it ends.
	PID int `json:"pid,omitempty"`
	// Size is the object's size in bytes: the sum of the pieces.
	Size devices.Size `json:"size"`
	// Dtype, Shape and Blobs are what user.hmc.dtype, .shape and .blobs say.
	Dtype string `json:"dtype,omitempty"`
	Shape string `json:"shape,omitempty"`
	Blobs string `json:"blobs,omitempty"`
	// Pieces make the object, in order, all of one device.
	Pieces []Piece `json:"pieces"`
}

// Piece is a part of one allocation.
type Piece struct {
	Kind devices.HandleKind `json:"kind"`
	// Handle is the vendor's bytes in hexadecimal, for kind "ipc".
	Handle string `json:"handle,omitempty"`
	// FD is the descriptor's number in the process PID, for the kinds that
	// are descriptors. Over the admin socket, where descriptors travel
	// beside the text, it is the place in their list.
	FD *int `json:"fd,omitempty"`
	// Path names shared host memory instead of FD ("/dev/shm/x",
	// "/proc/4711/fd/5").
	Path string `json:"path,omitempty"`
	// Offset and Size are the part of the allocation in bytes.
	Offset devices.Offset `json:"offset"`
	Size   devices.Size   `json:"size"`
	// Allocation is the size of the whole allocation, where it is known.
	Allocation devices.Size `json:"allocation,omitempty"`
}
