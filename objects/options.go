package objects

import (
	"cmp"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Options are the options of Open.
type Options struct {
	// Meta keeps the records. Required. The store does not close it.
	Meta *metadata.Store
	// Devices hold the bytes. The store does not close them.
	Devices []devices.Device
	// Engine moves the bytes. Required. The store does not close it.
	Engine *transport.Engine
	// Arena configures the allocators of device memory. The zero value is usable.
	Arena arena.Options
	// DirMode, UID and GID are those with which a device's root directory is made. DirMode
	// 0 is 0755.
	DirMode metadata.Mode
	UID     uint32
	GID     uint32
	// Atime selects the reads that change the access time of a file in device memory.
	// Default as relatime does.
	Atime devices.Atime
	// Guard opens files and descriptors of other processes; nil opens them in this process.
	// The store does not close it.
	Guard *owner.Guard
	// Keeper keeps the memory of devices that are devices.Lasting for the process that
	// follows this one; nil for memory that ends with the process.
	Keeper devices.DescriptorStore
	// Resumes reports that programs may still have files open that the process before has opened: what these keep stays until
	// Store.ReleaseUnclaimed.
	Resumes bool
	// Absent is the time, from Store.AwaitOwners on, for which keys and publications of sessions of the process before wait
	// for their owners; 0 makes them lost at once.
	Absent time.Duration
	// Logger receives life-cycle messages; nil discards them.
	Logger *zap.Logger
}

// EnsureDefaults sets defaults for the options that are not set.
func (o *Options) EnsureDefaults() {
	o.DirMode = cmp.Or(o.DirMode, 0o755)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate returns all errors of the options at once.
func (o *Options) Validate() error {
	var faults []error
	if o.Meta == nil {
		faults = append(faults, errors.New("objects: no metadata store given"))
	}
	if o.Engine == nil {
		faults = append(faults, errors.New("objects: no engine given"))
	}
	return errors.Join(faults...)
}
