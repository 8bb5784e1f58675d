package fs

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs/activity"
)

// Status is the state of a mount, for status, metrics and .hmcfs/stats.
type Status struct {
	MountPoint string `json:"mount_point"`
	// Passthrough says whether the kernel serves host-tier files itself; PassthroughReason,
	// why it does not.
	Passthrough       bool         `json:"passthrough"`
	PassthroughReason string       `json:"passthrough_reason,omitempty"`
	MaxWrite          devices.Size `json:"max_write"`
	ReadAhead         devices.Size `json:"read_ahead"`
	MaxBackground     int          `json:"max_background"`
	AllowOther        bool         `json:"allow_other"`
	// KernelVersion is the FUSE protocol of the kernel, such as "7.45".
	KernelVersion string `json:"kernel_fuse"`
	// OpenFiles and OpenDirs count handles.
	OpenFiles int `json:"open_files"`
	OpenDirs  int `json:"open_dirs"`
	// ViewNodes counts the files and directories of views that the kernel
	// knows.
	ViewNodes int `json:"view_nodes"`
	// Operations has one row for each kind of request seen so far, ordered by name.
	Operations []OperationStats `json:"operations"`
}

// OperationStats counts the requests of one kind.
type OperationStats struct {
	// Name is the kernel's name in lower case: "lookup", "read".
	Name string `json:"name"`
	// Count is the number of completed requests, and Errors that of the failed ones among
	// them. An object that is missing or not supported is no failure.
	Count  uint64 `json:"count"`
	Errors uint64 `json:"errors"`
	// Seconds is the total time that they took in the daemon.
	Seconds float64 `json:"seconds"`
	// Bytes is the number of bytes they moved; 0 for requests that move none.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Status returns the state of the mount.
func (s *Server) Status() Status {
	kernel := s.fuse.KernelSettings()
	status := s.Files().Status()
	status.MountPoint, status.KernelVersion = s.path, fmt.Sprintf("%d.%d", kernel.Major, kernel.Minor)
	return status
}

// Status returns the state of the files, without what concerns a mount.
func (t *Files) Status() Status {
	f := t.fs
	status := Status{
		Passthrough:   true,
		MaxWrite:      f.opts.MaxWrite,
		ReadAhead:     f.opts.ReadAhead,
		MaxBackground: f.opts.MaxBackground,
		AllowOther:    f.opts.AllowOther,
		OpenFiles:     f.files.len(),
		OpenDirs:      f.dirs.len(),
		ViewNodes:     f.views.len(),
		Operations:    f.ops.rows(),
	}
	if reason := f.backings.reason.Load(); reason != nil {
		status.Passthrough, status.PassthroughReason = false, *reason
	}
	return status
}

// Activity returns the threads whose requests the kernel has sent, and the requests that took long.
func (t *Files) Activity() ([]activity.Process, []activity.Slow) {
	return t.fs.ops.processes.List(), t.fs.ops.slow.List()
}
