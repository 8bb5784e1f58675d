package fs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport"
)

// PassthroughMode selects whether the kernel serves files of the host tier.
type PassthroughMode string

// The modes of passthrough.
const (
	// PassthroughAuto lets the kernel serve them where it and the privileges allow it.
	PassthroughAuto PassthroughMode = "auto"
	// PassthroughOff lets the daemon serve them.
	PassthroughOff PassthroughMode = "off"
)

// The defaults of Options.
const (
	DefaultReadAhead     = 4 * devices.MiB
	DefaultMaxWrite      = 1 * devices.MiB
	DefaultMaxBackground = 64
	DefaultCacheTimeout  = time.Hour
)

// The bounds of Options.
const (
	minMaxWrite      = 128 * devices.KiB
	maxMaxWrite      = 16 * devices.MiB
	maxReadAhead     = devices.GiB
	maxMaxBackground = 65535
	pageSize         = 4 * devices.KiB
)

// Options configures a mount.
type Options struct {
	// Store has this node's files. Required. The mount does not close it.
	Store *objects.Store
	// Engine provides the pinned buffers for read-ahead. Required.
	Engine *transport.Engine
	// Tree has the files of the mount. Default: made from Store and Cluster.
	Tree *cluster.Mesh
	// Cluster has the other nodes, which the mount shows under nodes/, and their keys under
	// keys/. Nil means none. The mount does not close it.
	Cluster *cluster.Cluster
	// MountPoint is an existing, empty directory. Required.
	MountPoint string
	// AllowOther grants access to users other than the mounting one, subject to file modes.
	AllowOther bool
	// Passthrough selects whether the kernel serves files of the host tier itself. Default
	// auto.
	Passthrough PassthroughMode
	// ReadAhead is the number of bytes the daemon reads ahead of a sequential reader of a
	// device that cannot be mapped, from 0 to 1 GiB, rounded down to whole requests; a
	// value below MaxWrite disables read-ahead. Default 4 MiB; NoReadAhead turns it off.
	ReadAhead devices.Size
	// NoReadAhead turns read-ahead off.
	NoReadAhead bool
	// MaxWrite is the largest read or write request, from 128 KiB to
	// 16 MiB, a multiple of 4 KiB. The kernel's fs.fuse.max_pages_limit
	// lowers it. Default 1 MiB.
	MaxWrite devices.Size
	// MaxBackground bounds the asynchronous requests the kernel keeps in
	// flight, from 1 to 65535. Default 64.
	MaxBackground int
	// CacheTimeout is the time the kernel may cache names and attributes. Only the mount
	// changes them, so it can be long. Default 1 h; a negative value disables caching. With
	// a Cluster, and once sessions have used files, it is at most 1 s, since others change this
	// node's files.
	CacheTimeout time.Duration
	// ListViews lists FILE.tensors beside each file that may have tensors;
	// without it, views are reached by name only.
	ListViews bool
	// MountOptions are mount options of the kernel: ro, nosuid, nodev, noexec, noatime and
	// the like.
	MountOptions []string
	// Version is the content of .hmcfs/version.
	Version string
	// Config, Stats and Topology return the contents of .hmcfs/config, stats and
	// topology.json. They are called when the file is opened, from any goroutine. Nil gives
	// an empty JSON object.
	Config, Stats, Topology func() ([]byte, error)
	// Keeper keeps the mount for a process that continues it with Resume; nil keeps it for none.
	Keeper Keeper
	// Logger receives life-cycle messages, degradations and failures; nil discards them.
	Logger *zap.Logger
	// Debug logs every request at debug level.
	Debug bool
}

// noContent returns the content of a control file that has no source.
func noContent() ([]byte, error) { return []byte("{}\n"), nil } //nolint:unparam // it has the type of Options.Config

// EnsureDefaults replaces zero values with the defaults.
func (o *Options) EnsureDefaults() {
	if o.Tree == nil {
		o.Tree = cluster.NewMesh(o.Store, o.Cluster)
	}
	o.Passthrough = cmp.Or(o.Passthrough, PassthroughAuto)
	o.ReadAhead = cmp.Or(o.ReadAhead, DefaultReadAhead)
	if o.NoReadAhead {
		o.ReadAhead = 0
	}
	o.MaxWrite = cmp.Or(o.MaxWrite, DefaultMaxWrite)
	o.MaxBackground = cmp.Or(o.MaxBackground, DefaultMaxBackground)
	o.CacheTimeout = cmp.Or(o.CacheTimeout, DefaultCacheTimeout)
	for _, content := range []*func() ([]byte, error){&o.Config, &o.Stats, &o.Topology} {
		if *content == nil {
			*content = noContent
		}
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("fs: "+format, args...))
	}
	if o.Store == nil {
		fault("no object store given")
	}
	if o.Engine == nil {
		fault("no transport engine given")
	}
	if o.MountPoint == "" {
		fault("no mount point given")
	}
	if o.Passthrough != PassthroughAuto && o.Passthrough != PassthroughOff {
		fault("unknown passthrough mode %q; use auto or off", string(o.Passthrough))
	}
	if o.ReadAhead > maxReadAhead {
		fault("read-ahead of %v is too large; use at most %v", o.ReadAhead, maxReadAhead)
	}
	if o.MaxWrite < minMaxWrite || o.MaxWrite > maxMaxWrite || o.MaxWrite%pageSize != 0 {
		fault("invalid largest request of %d bytes; use a multiple of 4 KiB from %v to %v", uint64(o.MaxWrite), minMaxWrite, maxMaxWrite)
	}
	if o.MaxBackground < 1 || o.MaxBackground > maxMaxBackground {
		fault("invalid number of background requests: %d; use 1 to %d", o.MaxBackground, maxMaxBackground)
	}
	for _, option := range o.MountOptions {
		if option == "" || strings.ContainsAny(option, ",\x00") {
			fault("invalid mount option %q; give one option per value, without commas", option)
		}
	}
	return errors.Join(faults...)
}

// String returns the options on one line, for the log.
func (o *Options) String() string {
	return fmt.Sprintf("mount-point=%s allow-other=%t passthrough=%s read-ahead=%v max-write=%v max-background=%d cache-timeout=%v list-views=%t options=%s",
		o.MountPoint, o.AllowOther, o.Passthrough, o.ReadAhead, o.MaxWrite, o.MaxBackground, o.CacheTimeout, o.ListViews, strings.Join(o.MountOptions, ","))
}

// frozen reports whether the mount permits no changes.
func (o *Options) frozen() (is bool) {
	for _, option := range o.MountOptions {
		is = option == "ro" || is && option != "rw"
	}
	return is
}
