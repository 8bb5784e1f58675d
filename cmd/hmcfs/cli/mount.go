package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

func (a *app) mountVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mount [flags] MOUNTPOINT",
		Short: "Mount the devices of this machine",
		Long: "Mount the devices of this machine on an empty directory. The command returns when the mount is\n" +
			"ready, and leaves a daemon running in the background; with -f it stays in the foreground.",
		Example: "  hmcfs mount /mnt/hmc\n" +
			"  hmcfs mount -f --device host,size=4GiB --device opencl:0,size=2GiB /mnt/hmc\n" +
			"  hmcfs mount --node a --cluster etcd://h1:2379,h2:2379 \\\n" +
			"    --listen 10.0.0.1:7070 --secret-file F /mnt/hmc\n" +
			"  hmcfs mount --node b --peer a=10.0.0.1:7070 \\\n" +
			"    --listen 10.0.0.2:7070 --secret-file F /mnt/hmc",
		Args: arguments(1, 1, "one MOUNTPOINT"),
	}
	return a.daemonVerb(cmd, &mountRun{app: a, flags: addOptions(cmd, nil)})
}

func (a *app) serveVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags] DIR",
		Short: "Serve the devices of this machine without a mount",
		Long: "Run the daemon of hmcfs mount without a mount, for machines that permit none, such as containers\n" +
			"without /dev/fuse: the same devices, records, keys, cluster and metrics. DIR takes the place of the\n" +
			"mount point: it is created if it is missing, must be empty, and gets one file that names the\n" +
			"daemon's socket. Other commands, and clients in Go and Python, find the daemon by DIR or a path\n" +
			"below it; the files are named hmc:DEVICE/PATH. End it with hmcfs umount DIR.",
		Example: "  hmcfs serve ~/hmc\n" +
			"  hmcfs cp weights.npy hmc:cuda0/weights.npy\n" +
			"  hmcfs umount --keep ~/hmc",
		Args: arguments(1, 1, "one DIR"),
	}
	return a.daemonVerb(cmd, &mountRun{app: a, flags: addOptions(cmd, func(p *config.Option) bool { return p.OfMount }), noMount: true})
}

// daemonVerb adds to a command what starts a daemon.
func (a *app) daemonVerb(cmd *cobra.Command, m *mountRun) *cobra.Command {
	cmd.Flags().BoolVarP(&m.foreground, "foreground", "f", false, "Stay in the foreground and log to standard error.")
	cmd.Flags().IntVar(&m.readyFD, "ready-fd", -1, "Descriptor on which a daemon reports that it is ready.")
	cmd.Flags().Lookup("ready-fd").Hidden = true
	return runs(cmd, m.run)
}

// mountRun is one execution of the mount or the serve command: of the one that the user calls,
// or of the daemon that it starts.
type mountRun struct {
	*app

	// noMount is set for serve.
	noMount    bool
	flags      *optionFlags
	foreground bool
	readyFD    int
	proofs     daemon.Proofs
	// again starts the daemon again.
	again holder.Start
}

func (m *mountRun) run(ctx context.Context, args []string) error {
	m.orderly.Store(true)
	settings, err := m.flags.resolve(m.app)
	if err != nil {
		return err
	}
	if m.noMount && settings.ReadOnly() {
		return usage(errors.New("option ro: hmcfs serve has no mount to be read-only; remove ro from the config file and from HMCFS_OPTION"))
	}
	// Read the files before the daemon changes its working directory.
	if m.proofs, err = readProofs(settings); err != nil {
		return err
	}
	if m.again, err = m.startAgain(); err != nil {
		return err
	}
	mountPoint, err := place.Absolute(args[0])
	if err != nil {
		return err
	}
	places, err := m.host().Of(mountPoint, settings.StateDir, settings.RuntimeDir)
	if err != nil {
		return usage(err)
	}
	if err := daemon.CheckMountPoint(mountPoint, m.noMount); err != nil {
		return err
	}
	if settings.Debug {
		settings.LogLevel = "debug"
	}
	switch {
	case m.readyFD >= 0:
		return m.ended(m.background(ctx, settings, places))
	case m.foreground:
		return m.ended(m.inForeground(ctx, settings, places))
	default:
		return m.daemonise(ctx, settings, places)
	}
}

// ended adds to the error of a daemon what the holder that has started it needs to know.
func (m *mountRun) ended(err error) error {
	if m.Getenv(holder.RevivedEnv) != "" && daemon.IsFull(err) {
		return &codeError{code: holder.ExitFull, err: err}
	}
	return err
}

// inForeground serves until a signal arrives or the mount ends.
func (m *mountRun) inForeground(ctx context.Context, s *config.Settings, p place.Paths) error {
	to := m.Stderr
	if s.LogFile != "" {
		f, err := openLog(s.LogFile)
		if err != nil {
			return err
		}
		rotating := rotateLog(f, maxLog)
		defer func() { _ = rotating.Close() }()
		to = rotating
	}
	log := newLogger(to, s.LogLevel, s.LogFile == "")
	defer func() { _ = log.Sync() }() // it fails for a terminal
	calls, closeCalls, err := accessLog(s)
	if err != nil {
		return err
	}
	defer closeCalls()
	o := m.options(s, p)
	o.LogFile, o.AccessLog, o.Logger = s.LogFile, calls, log
	// A daemon in the background is no process that a service manager waits for.
	o.NotifySocket = m.Getenv("NOTIFY_SOCKET")
	o.Ready = func(warnings []string) {
		for _, w := range warnings {
			m.note("%s", w)
		}
		if m.noMount {
			m.note("%s is served; end it with ^C or hmcfs umount %s", p.MountPoint, p.MountPoint)
			return
		}
		m.note("%s is mounted; unmount it with ^C or hmcfs umount %s", p.MountPoint, p.MountPoint)
	}
	return daemon.Run(ctx, o)
}

// options returns those of the daemon that do not depend on where it runs.
func (m *mountRun) options(s *config.Settings, p place.Paths) daemon.Options {
	return daemon.Options{
		Settings: s, Proofs: m.proofs, Places: p, NoMount: m.noMount, UID: m.UID, Version: version(), WrapDevice: m.WrapDevice,
		Guard: m.guardCommand, Force: m.force,
		Holder: m.holdCommand, Again: m.again, Revived: m.Getenv(holder.RevivedEnv) != "",
	}
}

// background is the daemon's side of daemonise: its standard streams are already the log.
func (m *mountRun) background(ctx context.Context, s *config.Settings, p place.Paths) error {
	pipe := os.NewFile(uintptr(m.readyFD), "ready")
	if pipe == nil {
		return usage(fmt.Errorf("--ready-fd %d is not open", m.readyFD))
	}
	defer func() { _ = pipe.Close() }()
	// The daemon must not keep the directory busy in which it was started.
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	file, err := openLog(logPath(s, p))
	if err != nil {
		return err
	}
	to := rotateLog(file, maxLog)
	defer func() { _ = to.Close() }()
	log := newLogger(to, s.LogLevel, false)
	defer func() { _ = log.Sync() }() // a failure cannot be reported anywhere else
	calls, closeCalls, err := accessLog(s)
	if err != nil {
		return err
	}
	defer closeCalls()
	o := m.options(s, p)
	o.LogFile, o.AccessLog, o.Logger = logPath(s, p), calls, log
	o.Ready = func(warnings []string) {
		writeReady(pipe, readyMessage{Ready: true, Warnings: warnings})
		_ = pipe.Close()
	}
	if err = daemon.Run(ctx, o); err != nil {
		writeReady(pipe, readyMessage{Error: err.Error(), Code: exitCode(err)})
	}
	return err
}

// accessLog opens the access log; the logger is nil if there is none.
func accessLog(s *config.Settings) (log *zap.Logger, end func(), err error) {
	if s.AccessLog == "" {
		return nil, func() {}, nil
	}
	f, err := openLog(s.AccessLog)
	if err != nil {
		return nil, nil, err
	}
	to := rotateLog(f, maxLog)
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime, c.LevelKey, c.MessageKey = zapcore.RFC3339NanoTimeEncoder, "", ""
	log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(to)), zapcore.InfoLevel))
	return log, func() { _ = to.Close() }, nil
}

// logPath returns the path of the log of a daemon in the background.
func logPath(s *config.Settings, p place.Paths) string {
	if s.LogFile != "" {
		return s.LogFile
	}
	return p.Log()
}
