package bench

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// The defaults of Options.
const (
	DefaultSize   = 256 * devices.MiB
	DefaultFiles  = 1000
	DefaultRounds = 5
)

// Options selects the measurements.
type Options struct {
	// MountPoint is the directory of the mount.
	MountPoint string
	// Devices are the directories to measure; none means all.
	Devices []string
	// Size is the size of the files, at least 1 MiB. Default 256 MiB. Every directory needs
	// room for two of them.
	Size devices.Size
	// Files is the number of empty files that are created, examined and removed. Default
	// 1000.
	Files int
	// Baseline is a directory on tmpfs. Empty means a tmpfs mounted for the run, or
	// /dev/shm if mounting is not permitted.
	Baseline string
	// Rounds is the number of measurements of each row. Default 5.
	Rounds int
	// Progress is called with the name of each measurement; it may be nil.
	Progress func(line string)
}

// EnsureDefaults sets zero options to their defaults.
func (o *Options) EnsureDefaults() {
	o.Size = cmp.Or(o.Size, DefaultSize)
	o.Files = cmp.Or(o.Files, DefaultFiles)
	o.Rounds = cmp.Or(o.Rounds, DefaultRounds)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
}

// Validate reports all invalid options, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.MountPoint == "" {
		faults = append(faults, errors.New("bench: no mount point"))
	}
	if o.Size < request {
		faults = append(faults, fmt.Errorf("bench: files of %v are too small; use at least %v", o.Size, request))
	}
	if o.Files < 1 {
		faults = append(faults, fmt.Errorf("bench: %d files; use at least 1", o.Files))
	}
	if o.Rounds < 1 {
		faults = append(faults, fmt.Errorf("bench: %d rounds; use at least 1", o.Rounds))
	}
	return errors.Join(faults...)
}
