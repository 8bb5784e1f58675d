package fs

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// What callers of Mount and Unmount tell apart.
var (
	// ErrBusy says that files of the mount are open, or that a process is in
	// one of its directories.
	ErrBusy = errors.New("fs: mount is in use")
	// ErrMountPoint says that the mount point can't be used as it is.
	ErrMountPoint = errors.New("fs: mount point unusable")
	// ErrNoFUSE says that the machine or the user can't mount FUSE
	// filesystems.
	ErrNoFUSE = errors.New("fs: no FUSE")
)

// Server is one mount.
type Server struct{}

// Mount mounts and returns when the mount answers. On an error nothing stays
// mounted.
func Mount(ctx context.Context, o Options) (*Server, error) {
	return nil, errors.New("fs: not built yet")
}

// Wait returns when the mount is gone, whoever unmounted it.
func (s *Server) Wait() {}

// Unmount ends the mount. It is ErrBusy while files are open.
func (s *Server) Unmount(ctx context.Context) error { return nil }

// Status tells the state of the mount.
func (s *Server) Status() Status { return Status{} }

// Status is the state of a mount, for status, metrics and .hmcfs/stats.
type Status struct {
	MountPoint string `json:"mount_point"`
	// Passthrough says that the kernel serves host-tier files by itself;
	// PassthroughReason says why it does not.
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
	// Operations has one row for each kind of request that was seen,
	// ordered by name.
	Operations []OperationStats `json:"operations"`
}

// OperationStats counts the requests of one kind.
type OperationStats struct {
	// Name is the kernel's, lower case: "lookup", "read".
	Name string `json:"name"`
	// Count is how many have ended, Errors those of them that failed.
	// A name that does not exist and an attribute that is not there are no
	// failures.
	Count  uint64 `json:"count"`
	Errors uint64 `json:"errors"`
	// Seconds is the time that they took in the daemon, together.
	Seconds float64 `json:"seconds"`
	// Bytes is how many bytes they moved; 0 for those that move none.
	Bytes uint64 `json:"bytes,omitempty"`
}
