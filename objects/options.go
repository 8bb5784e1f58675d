package objects

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Options describe a store.
type Options struct {
	// Meta keeps the records. Required. The store does not close it.
	Meta *metadata.Store
	// Devices hold the bytes. The store does not close them.
	Devices []devices.Device
	// Engine moves the bytes. Required. The store does not close it.
	Engine *transport.Engine
	// Arena says how device memory is cut. The zero value is good.
	Arena arena.Options
	// TrimEvery is the time that device memory that no object uses is kept for the
	// next one: between one and two of these. Default 10 s.
	TrimEvery time.Duration
	// DirMode, UID and GID are what a device's root directory gets when it is
	// made. DirMode 0 is 0755.
	DirMode metadata.Mode
	UID     uint32
	GID     uint32
	// Atime says which reads change the access time of a file in device memory.
	// Default as relatime does.
	Atime devices.Atime
	// Guard takes what other processes have open; nil takes it in this process.
	// The store does not close it.
	Guard *owner.Guard
	// Logger gets life-cycle messages; nil is silent.
	Logger *zap.Logger
}

// EnsureDefaults fills in what was left out.
func (o *Options) EnsureDefaults() {
	if o.DirMode == 0 {
		o.DirMode = 0o755
	}
	if o.TrimEvery <= 0 {
		o.TrimEvery = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// Validate reports every fault at once.
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
