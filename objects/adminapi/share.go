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

// File names a file by one of its fields. A request of a session's frames has no Ino, and without a Path the first descriptor is
// the file.
type File struct {
	// Path is the file's path, absolute or from the root of the mount. Symbolic links are not
	// followed.
	Path string `json:"path,omitempty"`
	// Ino is its inode number.
	Ino metadata.Ino `json:"ino,omitempty"`
}

// BindRequest makes memory of another process the content of a file. If descriptors of the memory are passed, a piece's fd is an
// index into these, from 0; otherwise it is a descriptor number in the process pid.
type BindRequest struct {
	File
	Memory share.Memory `json:"memory"`
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
	// Hold makes the export last until the request, one of a session's frames, is cancelled, or the session ends.
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
