package daemon

import (
	"os/exec"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
)

// Options describe a daemon.
type Options struct {
	// Settings are the mount's options. Required.
	Settings *config.Settings
	// Proofs are the credentials of a mount in a cluster.
	Proofs Proofs
	// Places are the files and directories of the mount. Required.
	Places place.Paths
	// NoMount serves without a mount: the mount point is a directory in which a file names the
	// socket, and sessions are the only way to the files.
	NoMount bool
	// UID is the user who owns the mount.
	UID int
	// Version is the program's.
	Version string
	// WrapDevice, if not nil, wraps every device: tests inject faults with it.
	WrapDevice func(devices.Device) devices.Device
	// Guard returns the command of the process that receives what clients send or name: it
	// runs owner.ServeGuard. nil receives it in this process.
	Guard func() *exec.Cmd
	// Holder returns the command of the process that keeps the mount with the option hold: it runs
	// holder.Run. Again is how the daemon is started again if it dies.
	Holder func() *exec.Cmd
	Again  holder.Start
	// Revived is set for a daemon that a holder has started.
	Revived bool
	// LogFile is the path of the log, for the status.
	LogFile string
	// AccessLog gets a message for each call of a session; nil gets none.
	AccessLog *zap.Logger
	// Logger gets the messages of all layers; nil is silent.
	Logger *zap.Logger
	// Ready is called once, when the mount answers, with warnings for the user.
	Ready func(warnings []string)
	// NotifySocket is the socket of the service manager, which is told when the mount answers and
	// when it ends (sd_notify); empty tells nobody.
	NotifySocket string
	// Force is closed when the user wants the daemon to exit at once: it then no longer
	// waits for operations in progress.
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
