package adminapi

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/share"
)

// The paths of what shares memory with other processes.
const (
	PathBind   = "/v1/bind"
	PathExport = "/v1/export"
)

// DescriptorProtocol is the protocol that a client asks to upgrade to when descriptors are
// to travel.
const DescriptorProtocol = "hmcfs-descriptors"

// File names the file that is meant, by one of its fields. Where descriptors
// travel both are empty: there the first descriptor is the file.
type File struct {
	// Path is the file's, absolute or from the root of the mount. Symbolic
	// links are not followed.
	Path string `json:"path,omitempty"`
	// Ino is its inode number.
	Ino metadata.Ino `json:"ino,omitempty"`
}

// BindRequest makes memory of another process the content of a file.
type BindRequest struct {
	File
	Memory share.Memory `json:"memory"`
	// Descriptors is the number of descriptors of the memory that travel with the
	// request, the file's not counted. Where it is 0, a piece's fd is a number
	// in the process pid; otherwise its place among these, from 0.
	Descriptors int `json:"descriptors,omitempty"`
}

// BindAnswer tells what a file is now.
type BindAnswer struct {
	Ino    metadata.Ino        `json:"ino"`
	Path   string              `json:"path,omitempty"`
	Device metadata.DeviceName `json:"device"`
	Size   devices.Size        `json:"size"`
	State  string              `json:"state"`
}

// ExportRequest asks for a name of a file's memory. The answer is a
// share.Memory.
type ExportRequest struct {
	File
	// Kind is the kind of handle; empty is the device's best.
	Kind devices.HandleKind `json:"kind,omitempty"`
	// Holder is a process: when it ends, so does the export.
	Holder int `json:"holder,omitempty"`
	// Hold ends the export with the connection on which descriptors travel.
	Hold bool `json:"hold,omitempty"`
	// Text asks for names alone, as without descriptors, where they could
	// travel.
	Text bool `json:"text,omitempty"`
	// End ends every export of the file. The answer is an EndAnswer.
	End bool `json:"end,omitempty"`
}

// EndAnswer says that a file is not exported any more.
type EndAnswer struct {
	Ino   metadata.Ino `json:"ino"`
	Ended bool         `json:"ended"`
}

// Reply is the answer where descriptors travel: one of its fields.
type Reply struct {
	// Failure is why not, with the status that plain HTTP would have.
	Failure *Error      `json:"failure,omitempty"`
	Status  int         `json:"status"`
	Bound   *BindAnswer `json:"bound,omitempty"`
	// Memory describes the exported memory: a piece's fd is the place of its
	// descriptor among those of the reply.
	Memory *share.Memory `json:"memory,omitempty"`
	// Descriptors is the number of descriptors that travel with the reply.
	Descriptors int        `json:"descriptors,omitempty"`
	Ended       *EndAnswer `json:"ended,omitempty"`
	// Registered is memory that a session knows now.
	Registered *Registered `json:"registered,omitempty"`
	// Collected and Verified are of several files.
	Collected *CollectAnswer `json:"collected,omitempty"`
	Verified  *VerifyAnswer  `json:"verified,omitempty"`
}
