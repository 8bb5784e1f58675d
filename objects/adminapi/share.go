package adminapi

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/share"
)

// The paths of requests that share memory with other processes.
const (
	PathBind   = "/v1/bind"
	PathExport = "/v1/export"
)

// DescriptorProtocol is the protocol that a client upgrades to in order to pass descriptors.
const DescriptorProtocol = "hmcfs-descriptors"

// File names a file by one of its fields. If descriptors are passed it has no Ino, and without a
// Path the first descriptor is the file.
type File struct {
	// Path is the file's path, absolute or from the root of the mount. Symbolic links are not
	// followed.
	Path string `json:"path,omitempty"`
	// Ino is its inode number.
	Ino metadata.Ino `json:"ino,omitempty"`
}

// BindRequest makes memory of another process the content of a file.
type BindRequest struct {
	File
	Memory share.Memory `json:"memory"`
	// Descriptors is the number of descriptors of the memory passed with the request, not
	// counting the file's. If it is 0, a piece's fd is a descriptor number in the process pid;
	// otherwise it is an index into these, from 0.
	Descriptors int `json:"descriptors,omitempty"`
}

// BindAnswer describes the file after a bind.
type BindAnswer struct {
	Ino    metadata.Ino        `json:"ino"`
	Path   string              `json:"path,omitempty"`
	Device metadata.DeviceName `json:"device"`
	Size   devices.Size        `json:"size"`
	State  string              `json:"state"`
}

// ExportRequest requests a name of a file's memory. The answer is a share.Memory.
type ExportRequest struct {
	File
	// Kind is the kind of handle; empty selects the best one of the device.
	Kind devices.HandleKind `json:"kind,omitempty"`
	// Holder is a process: when it exits, the export ends.
	Holder int `json:"holder,omitempty"`
	// Hold makes the export end with the connection on which descriptors are passed.
	Hold bool `json:"hold,omitempty"`
	// Text requests names only, as without descriptors, even if descriptors could be passed.
	Text bool `json:"text,omitempty"`
	// End ends every export of the file. The answer is an EndAnswer.
	End bool `json:"end,omitempty"`
}

// EndAnswer reports that a file is no longer exported.
type EndAnswer struct {
	Ino   metadata.Ino `json:"ino"`
	Ended bool         `json:"ended"`
}

// Reply is the answer if descriptors are passed. One of its fields is set.
type Reply struct {
	// Failure is the error, and Status the status that plain HTTP would have.
	Failure *Error      `json:"failure,omitempty"`
	Status  int         `json:"status"`
	Bound   *BindAnswer `json:"bound,omitempty"`
	// Memory describes the exported memory: a piece's fd is the index of its descriptor among
	// those of the reply.
	Memory *share.Memory `json:"memory,omitempty"`
	// Descriptors is the number of descriptors passed with the reply.
	Descriptors int        `json:"descriptors,omitempty"`
	Ended       *EndAnswer `json:"ended,omitempty"`
	// Registered is memory that was registered in a session.
	Registered *Registered `json:"registered,omitempty"`
	// Collected and Verified are the answers to requests on several files.
	Collected *CollectAnswer `json:"collected,omitempty"`
	Verified  *VerifyAnswer  `json:"verified,omitempty"`
}
