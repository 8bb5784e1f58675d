package daemon

import (
	"os/exec"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
)

// Options describe a daemon.
type Options struct {
	// Settings are the mount's options. Required.
	Settings *config.Settings
	// Proofs are for a mount among others.
	Proofs Proofs
	// Places are those of the mount's things. Required.
	Places place.Paths
	// UID is the user whose mount it is.
	UID int
	// Version is the program's.
	Version string
	// WrapDevice, if not nil, is put around every device: tests inject
	// faults with it.
	WrapDevice func(devices.Device) devices.Device
	// Guard is the command of the process that takes what clients send and
	// name: it runs owner.ServeGuard. nil takes it in this process.
	Guard func() *exec.Cmd
	// LogFile is the path of the log, for status.
	LogFile string
	// Logger gets the messages of all layers; nil is silent.
	Logger *zap.Logger
	// Ready is called once, when the mount answers, with what the user
	// should know of it.
	Ready func(warnings []string)
	// Force is closed when a person has lost patience: what is under way at
	// the end is not waited for.
	Force <-chan struct{}
}

func (o *Options) ensureDefaults() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Ready == nil {
		o.Ready = func([]string) {}
	}
}
