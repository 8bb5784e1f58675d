package adminapi

import (
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// The paths of the API.
const (
	PathVersion = "/v1/version"
	PathStatus  = "/v1/status"
	PathObject  = "/v1/object"
	PathConfig  = "/v1/config"
	PathFsck    = "/v1/fsck"
	PathUmount  = "/v1/umount"
	PathMetrics = "/metrics"
)

// Version tells which program serves the mount.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// MountPoint is that of the daemon that is asked.
	MountPoint string `json:"mount_point,omitempty"`
}

// Status describes a mount and its state.
type Status struct {
	Version       string      `json:"version"`
	PID           int         `json:"pid"`
	UID           int         `json:"uid"`
	Started       time.Time   `json:"started"`
	UptimeSeconds float64     `json:"uptime_seconds"`
	MountPoint    string      `json:"mount_point"`
	StateDir      string      `json:"state_dir"`
	RuntimeDir    string      `json:"runtime_dir"`
	Socket        string      `json:"socket"`
	LogFile       string      `json:"log_file,omitempty"`
	Keep          bool        `json:"keep"`
	AllowOther    bool        `json:"allow_other"`
	ReadOnly      bool        `json:"read_only"`
	Passthrough   Passthrough `json:"passthrough"`
	Devices       []Device    `json:"devices"`
	// Paths has one row for each way that bytes took and device.
	Paths  []transport.PathStats `json:"paths"`
	Memory Memory                `json:"memory"`
	// Cluster is nil where the mount is one of its own.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Passthrough tells whether the kernel serves host files by itself.
type Passthrough struct {
	On bool `json:"on"`
	// Reason says why not.
	Reason string `json:"reason,omitempty"`
}

// Device is one device of a mount.
type Device struct {
	Name   devices.Name   `json:"name"`
	Family devices.Family `json:"family"`
	Model  string         `json:"model"`
	PCI    string         `json:"pci,omitempty"`
	NUMA   int            `json:"numa"`
	Epoch  devices.Epoch  `json:"epoch"`
	Total  devices.Size   `json:"total"`
	Used   devices.Size   `json:"used"`
	Free   devices.Size   `json:"free"`
	// Held counts the bytes that hmcfs has taken from the device and not given back: Used
	// and what it keeps for new objects. 0 for a file tier.
	Held devices.Size `json:"held"`
	// Aside counts the files without a record that were set aside, and AsideUsed is
	// the part of Used that they take.
	Aside     int          `json:"aside,omitempty"`
	AsideUsed devices.Size `json:"aside_used,omitempty"`
	FileTier  bool         `json:"file_tier"`
	// InDaemon says that what is held is memory of the daemon's process: a
	// simulated device's, or that of one that shares the host's memory.
	InDaemon bool `json:"in_daemon"`
	// Objects counts the device's files with content, Bound those whose memory
	// another process owns, Lost those whose memory is gone; nil where they
	// were not asked for, or took too long to count.
	Objects *int `json:"objects,omitempty"`
	Bound   *int `json:"bound,omitempty"`
	Lost    *int `json:"lost,omitempty"`
}

// Memory is that of the daemon's process, in bytes.
type Memory struct {
	// Resident is the process's resident memory, and Devices the part of it
	// that is no overhead: what the devices hold that keep their memory in
	// the process. Heap and Pinned are the daemon's own.
	Resident devices.Size `json:"resident"`
	Devices  devices.Size `json:"devices"`
	// Registered is the part of Resident that is the host tier's: files that
	// devices have registered are mapped here.
	Registered devices.Size `json:"registered"`
	Heap       devices.Size `json:"heap"`
	Pinned     devices.Size `json:"pinned"`
	// Goroutines and Files count the daemon's goroutines and descriptors.
	Goroutines int `json:"goroutines"`
	Files      int `json:"files"`
}

// Object is one file and the memory that holds it.
type Object struct {
	Ino       metadata.Ino        `json:"ino"`
	Path      string              `json:"path"`
	Device    metadata.DeviceName `json:"device"`
	Size      uint64              `json:"size"`
	Allocated uint64              `json:"allocated"`
	Resident  uint64              `json:"resident"`
	State     string              `json:"state"`
	Dtype     string              `json:"dtype,omitempty"`
	Shape     string              `json:"shape,omitempty"`
	Blobs     string              `json:"blobs,omitempty"`
	Key       string              `json:"key,omitempty"`
	LastPath  string              `json:"last_path,omitempty"`
	// Exported is the number of the first bytes that can't be cut, since other
	// processes may have them mapped, by handles of ExportKind.
	Exported   uint64             `json:"exported,omitempty"`
	ExportKind devices.HandleKind `json:"export_kind,omitempty"`
	Extents    []Extent           `json:"extents"`
}

// Extent is one piece of an object in device memory.
type Extent struct {
	FileOff    uint64                `json:"file_off"`
	Len        uint64                `json:"len"`
	Written    uint64                `json:"written"`
	Allocation metadata.AllocationID `json:"allocation"`
	Off        uint64                `json:"off"`
	Epoch      metadata.Epoch        `json:"epoch"`
	Pinned     bool                  `json:"pinned"`
}

// Setting is one option of a mount, its value and its source.
type Setting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// FsckRequest asks for a check.
type FsckRequest struct {
	// RemoveLost removes every lost object.
	RemoveLost bool `json:"remove_lost"`
	// Repair mends the contradictions in the records, before lost objects
	// are looked for.
	Repair bool `json:"repair,omitempty"`
	// RemoveAside removes the host memory without records that was set aside.
	RemoveAside bool `json:"remove_aside,omitempty"`
}

// FsckReport is the result of a check.
type FsckReport struct {
	// Checked counts the inodes that were looked at.
	Checked int `json:"checked"`
	// Problems are contradictions in the records: with Repair, also those
	// that came to light by mending others.
	Problems []Problem `json:"problems"`
	// Repaired counts the problems that are mended now.
	Repaired int `json:"repaired"`
	// Lost are the objects whose bytes are gone.
	Lost []LostObject `json:"lost"`
	// Removed counts the lost objects that were removed.
	Removed int `json:"removed"`
	// Aside are the files of host memory that had no record, and were set aside
	// because it may have been lost.
	Aside []AsideFile `json:"aside"`
	// RemovedAside counts those of them that were removed.
	RemovedAside int `json:"removed_aside"`
}

// AsideFile is host memory without a record. It is a plain file, which the owner of
// the mount can read.
type AsideFile struct {
	Path    string       `json:"path"`
	Ino     metadata.Ino `json:"ino"`
	Size    uint64       `json:"size"`
	Used    devices.Size `json:"used"`
	Changed time.Time    `json:"changed"`
	Removed bool         `json:"removed"`
}

// Problem is one contradiction in the records.
type Problem struct {
	Text string       `json:"text"`
	Ino  metadata.Ino `json:"ino,omitempty"`
	// Repaired says that it is mended now, and Done how. Fault is why it is
	// not, although that was asked for.
	Repaired bool   `json:"repaired"`
	Done     string `json:"done,omitempty"`
	Fault    string `json:"error,omitempty"`
}

// LostObject is a file whose bytes are gone with its device's memory.
type LostObject struct {
	Path    string              `json:"path"`
	Ino     metadata.Ino        `json:"ino"`
	Device  metadata.DeviceName `json:"device"`
	Size    uint64              `json:"size"`
	Removed bool                `json:"removed"`
}

// UmountRequest asks the daemon to end.
type UmountRequest struct {
	// Keep leaves the host tier and the records, as the mount's --keep does.
	Keep bool `json:"keep"`
	// Lazy takes the name away at once, even when the mount is in use.
	Lazy bool `json:"lazy"`
}

// UmountAnswer comes when everything is cleaned up.
type UmountAnswer struct {
	PID  int  `json:"pid"`
	Kept bool `json:"kept"`
	// Copies tells of other mount namespaces that had a copy of the mount, which was
	// cut off: one process of each.
	Copies []string `json:"copies,omitempty"`
}

// The codes of an Error.
const (
	CodeBusy      = "busy"
	CodeForbidden = "forbidden"
	CodeNotFound  = "not_found"
	CodeInvalid   = "invalid"
	CodeInternal  = "internal"
	// CodeUnsupported says that this file's device can't do that.
	CodeUnsupported = "unsupported"
	// CodeLost is memory that is gone.
	CodeLost = "lost"
	// CodeNoMemory is a device that is full.
	CodeNoMemory = "no_memory"
	// CodeEnding is a daemon that is about to end.
	CodeEnding = "ending"
	// CodeNoSession is a session that is not there, or of another user.
	CodeNoSession = "no_session"
)

// Error is the body of every answer that is not a success.
type Error struct {
	Text string `json:"error"`
	Code string `json:"code"`
}
