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
	PathUpgrade = "/v1/upgrade"
	PathMetrics = "/metrics"
)

// Version describes the program that serves the mount.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// MountPoint is that of the daemon that answers.
	MountPoint string `json:"mount_point,omitempty"`
	// Formats are those of what a daemon leaves to the one that follows it, by name.
	Formats map[string]Format `json:"formats,omitempty"`
}

// Format is a format of which a program writes the newest version, and reads all from the oldest to that.
type Format struct {
	Oldest uint64 `json:"oldest"`
	Newest uint64 `json:"newest"`
}

// Status describes a mount and its state.
type Status struct {
	Version       string    `json:"version"`
	Program       string    `json:"program"`
	PID           int       `json:"pid"`
	UID           int       `json:"uid"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	MountPoint    string    `json:"mount_point"`
	StateDir      string    `json:"state_dir"`
	RuntimeDir    string    `json:"runtime_dir"`
	Socket        string    `json:"socket"`
	LogFile       string    `json:"log_file,omitempty"`
	Keep          bool      `json:"keep"`
	AllowOther    bool      `json:"allow_other"`
	ReadOnly      bool      `json:"read_only"`
	// Served is set for a daemon without a mount: MountPoint then is a served directory.
	Served bool `json:"served"`
	// Holder is nil if nothing keeps the mount when the daemon dies.
	Holder *Holder `json:"holder,omitempty"`
	// Continued is nil if the daemon began without memory of an earlier one.
	Continued *Continued `json:"continued,omitempty"`
	// Metrics and HTTP are the addresses, HOST:PORT, at which the metrics and the page are served
	// over TCP; empty if they are not.
	Metrics     string      `json:"metrics,omitempty"`
	HTTP        string      `json:"http,omitempty"`
	Passthrough Passthrough `json:"passthrough"`
	Devices     []Device    `json:"devices"`
	// Paths has one row for each combination of a route and a device.
	Paths  []transport.PathStats `json:"paths"`
	Memory Memory                `json:"memory"`
	// Cluster is nil if the mount does not belong to a cluster.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Holder is the process that keeps the mount while no daemon lives.
type Holder struct {
	// PID is 0 if the process has ended.
	PID int `json:"pid"`
	// Kept is the number of descriptors that it keeps, and Deaths that of the daemons that have
	// died, the last one at LastDeath.
	Kept      int       `json:"kept"`
	Deaths    int       `json:"deaths"`
	LastDeath time.Time `json:"last_death,omitzero"`
}

// Continued is the device memory that a daemon has from an earlier one.
type Continued struct {
	// Objects counts the files in it, and Bytes their bytes.
	Objects int          `json:"objects"`
	Bytes   devices.Size `json:"bytes"`
	// Freed is the memory that no file owned any more.
	Freed devices.Size `json:"freed"`
}

// Passthrough reports whether the kernel serves host files itself.
type Passthrough struct {
	On bool `json:"on"`
	// Reason is the reason why it does not.
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
	// Held is the number of bytes that hmcfs has allocated from the device and not freed: Used
	// and what it keeps for new objects. 0 for a file tier.
	Held devices.Size `json:"held"`
	// Aside is the number of files without a record that were set aside, and AsideUsed the
	// part of Used that they take.
	Aside     int          `json:"aside,omitempty"`
	AsideUsed devices.Size `json:"aside_used,omitempty"`
	FileTier  bool         `json:"file_tier"`
	// InDaemon is true if the held memory is memory of the daemon's process: that of a
	// simulated device, or of a device that shares host memory.
	InDaemon bool `json:"in_daemon"`
	// Objects is the number of the device's files with content, Bound that of files whose
	// memory another process owns, Lost that of files whose memory is gone; nil if they were
	// not requested, or took too long to count.
	Objects *int `json:"objects,omitempty"`
	Bound   *int `json:"bound,omitempty"`
	Lost    *int `json:"lost,omitempty"`
}

// Memory describes the memory of the daemon's process, in bytes.
type Memory struct {
	// Resident is the process's resident memory, and Devices the part of it that is no
	// overhead: the memory of devices that keep it in the process. Heap and Pinned are the
	// daemon's own.
	Resident devices.Size `json:"resident"`
	Devices  devices.Size `json:"devices"`
	// Registered is the part of Resident that belongs to the host tier: files that devices
	// have registered are mapped here.
	Registered devices.Size `json:"registered"`
	Heap       devices.Size `json:"heap"`
	Pinned     devices.Size `json:"pinned"`
	// Goroutines and Files are the numbers of the daemon's goroutines and descriptors.
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
	// Exported is the number of bytes at the beginning that can't be truncated, since other
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

// Setting is one option of a mount, with its value and source.
type Setting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// FsckRequest requests a check.
type FsckRequest struct {
	// RemoveLost removes every lost object.
	RemoveLost bool `json:"remove_lost"`
	// Repair repairs the contradictions in the records, before lost objects are searched for.
	Repair bool `json:"repair,omitempty"`
	// RemoveAside removes the host memory without records that was set aside.
	RemoveAside bool `json:"remove_aside,omitempty"`
}

// FsckReport is the result of a check.
type FsckReport struct {
	// Checked is the number of inodes that were checked.
	Checked int `json:"checked"`
	// Problems are contradictions in the records: with Repair, including those that were found
	// by repairing others.
	Problems []Problem `json:"problems"`
	// Repaired is the number of problems that were repaired.
	Repaired int `json:"repaired"`
	// Lost are the objects whose bytes are gone.
	Lost []LostObject `json:"lost"`
	// Removed is the number of lost objects that were removed.
	Removed int `json:"removed"`
	// Aside are the files of host memory without a record, which were set aside because the
	// record may have been lost.
	Aside []AsideFile `json:"aside"`
	// RemovedAside is the number of them that were removed.
	RemovedAside int `json:"removed_aside"`
}

// AsideFile is host memory without a record. It is a plain file, which the owner of the mount
// can read.
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
	// Repaired is true if it was repaired, and Done says how. Fault is the reason why it was
	// not, although that was requested.
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

// UpgradeRequest replaces the daemon by another program, which continues the mount.
type UpgradeRequest struct {
	// Program is the absolute path of the program.
	Program string `json:"program"`
}

// UpgradeAnswer is sent before the daemon ends.
type UpgradeAnswer struct {
	PID int `json:"pid"`
	// Version is that of the program that follows.
	Version string `json:"version"`
}

// UmountRequest makes the daemon exit.
type UmountRequest struct {
	// Keep keeps the host tier and the records, as the mount's --keep does.
	Keep bool `json:"keep"`
	// Lazy removes the name at once, even if the mount is in use.
	Lazy bool `json:"lazy"`
}

// UmountAnswer is sent once everything is cleaned up.
type UmountAnswer struct {
	PID  int  `json:"pid"`
	Kept bool `json:"kept"`
	// Copies names one process of each other mount namespace that had a copy of the mount,
	// which was disconnected.
	Copies []string `json:"copies,omitempty"`
}

// The codes of an Error.
const (
	CodeBusy      = "busy"
	CodeForbidden = "forbidden"
	CodeNotFound  = "not_found"
	CodeInvalid   = "invalid"
	CodeInternal  = "internal"
	// CodeUnsupported reports that the file's device does not support the operation.
	CodeUnsupported = "unsupported"
	// CodeLost reports memory that is gone.
	CodeLost = "lost"
	// CodeNoMemory reports a full device.
	CodeNoMemory = "no_memory"
	// CodeEnding reports that the daemon is about to exit.
	CodeEnding = "ending"
	// CodeNoSession reports a session that does not exist, or belongs to another user.
	CodeNoSession = "no_session"
)

// Error is the body of every response that is not a success.
type Error struct {
	Text string `json:"error"`
	Code string `json:"code"`
}
