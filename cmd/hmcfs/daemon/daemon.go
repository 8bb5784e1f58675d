package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/web"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/filecollect"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/affinity"
)

// Daemon is one running mount, or the same without a mount.
type Daemon struct {
	opts    Options
	log     *zap.Logger
	started time.Time

	lock, stateLock *place.Lock
	// release ends the claim on the directory of a daemon without a mount; nil with one.
	release func()
	// holder keeps the mount for a daemon that follows; nil without one. resumes is set if it keeps a mount, which this daemon
	// continues.
	holder  *holder.Client
	resumes bool
	// inherited is set if the holder is that of an earlier daemon: it, and what it keeps, outlive a
	// start that fails.
	inherited bool
	// sameNode is set if this daemon continues the incarnation that the one before has left in the
	// cluster.
	sameNode bool
	// raw are the devices as opened, devs the ones that the layers use.
	raw, devs []devices.Device
	families  *devices.Registry
	joined    joined
	// pinner is nil if threads are not bound to NUMA nodes.
	pinner *affinity.Pinner
	meta   *metadata.Store
	engine *transport.Engine
	store  *objects.Store
	// guard is nil if this process receives what clients send itself.
	guard *owner.Guard
	// others is nil if the mount is not part of a cluster.
	others *others
	// collector executes collectives on files.
	collector *filecollect.Collector
	// tree contains the files of the store and of all other nodes.
	tree  *cluster.Mesh
	files *fs.Files
	// server is nil without a mount.
	server *fs.Server
	admin  *admin.Server
	// token gives access to the page. metrics and page are nil unless the options have them.
	token         string
	metrics, page *web.Server
	// refusals counts the requests of users that the admin socket refused.
	refusals admin.Refusals
	// clientRefusals counts refused requests of clients of heterogeneous objects.
	clientRefusals local.Refusals
	// dev is the mount's device number, which identifies its connection when it is aborted.
	dev string

	// asked passes requests to unmount from the admin socket to Run.
	asked chan umountCall
	// copies are the copies of the mount in other mount namespaces that were cut off. Only
	// Run uses it.
	copies []string
	// gone is closed when the mount no longer exists, whoever unmounted it.
	gone chan struct{}
	// over is closed when Run accepts no more requests to unmount.
	over chan struct{}

	// warned holds the warnings for the user who mounts. Only build writes it.
	warned []string
}

type umountCall struct {
	request adminapi.UmountRequest
	reply   chan umountReply
}

type umountReply struct {
	answer adminapi.UmountAnswer
	err    error
}

// Run mounts, serves until the mount is unmounted, and cleans up. The end of the context
// requests an unmount.
func Run(ctx context.Context, o Options) error {
	o.ensureDefaults()
	d := &Daemon{
		opts: o, log: o.Logger.Named("daemon"), started: time.Now(),
		asked: make(chan umountCall), gone: make(chan struct{}), over: make(chan struct{}),
	}
	// The modes that users request must not be masked: the kernel has applied the umask of
	// each user already.
	unix.Umask(0)
	raiseFileLimit()
	if err := d.build(ctx); err != nil {
		return err
	}
	if d.holder != nil {
		go d.watchHolder()
	}
	limitMemory(d.log) // after build, so that the error of a refused mount is not preceded by log lines
	d.tell("READY=1", "STATUS=Serving "+d.opts.Places.MountPoint)
	d.log.Info("ready", zap.Bool("mounted", !o.NoMount), zap.String("mount_point", o.Places.MountPoint), zap.String("version", o.Version))
	o.Ready(d.warnings())
	return d.serve(ctx)
}

// serve waits for an unmount, a signal or a request to unmount, and cleans up.
func (d *Daemon) serve(ctx context.Context) error {
	keep := d.opts.Settings.Keep
	// The cleanup must run although the context has ended.
	calm := context.WithoutCancel(ctx)
	for {
		select {
		case <-d.gone:
			d.log.Info("unmounted by another process")
			return d.finish(calm, keep, nil)
		case <-ctx.Done():
			d.log.Info("stopped by a signal")
			d.unmountForSure(calm)
			return d.finish(calm, keep, nil)
		case call := <-d.asked:
			if err := d.unmount(calm, call.request.Lazy); err != nil {
				call.reply <- umountReply{err: err}
				continue
			}
			return d.finish(calm, keep || call.request.Keep, call.reply)
		}
	}
}

// finish takes the mount apart, replies to the request to unmount, and only then closes the
// admin socket and releases the locks.
func (d *Daemon) finish(ctx context.Context, keep bool, reply chan<- umountReply) error {
	close(d.over)
	d.tell("STOPPING=1", "STATUS=Ending "+d.opts.Places.MountPoint)
	d.metrics.Close()
	d.page.Close()
	d.endShares(ctx)
	d.leaveOthers(ctx)
	err := d.teardown(ctx, keep)
	if err != nil {
		d.log.Error("clean-up failed", zap.Error(err))
	}
	if reply != nil {
		reply <- umountReply{answer: adminapi.UmountAnswer{PID: unix.Getpid(), Kept: keep, Copies: d.copies}, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if aerr := d.admin.Close(ctx); aerr != nil {
		d.log.Warn("admin server did not shut down in time", zap.Error(aerr))
	}
	if herr := d.holder.End(); herr != nil {
		d.log.Warn("the holder did not end in order", zap.Error(herr))
	}
	d.opts.Places.CleanSocket()
	if d.opts.NoMount {
		place.CleanServed(d.opts.Places.MountPoint)
		d.release()
	}
	d.stateLock.Release()
	d.lock.Remove()
	if !keep && err == nil {
		d.opts.Places.ForgetAll()
	}
	d.opts.Places.Clean()
	d.log.Info("ended", zap.Bool("kept", keep))
	return err
}

// sharesLimit bounds the wait for sessions, binds and exports in progress.
const sharesLimit = 30 * time.Second

// endShares ends all use of the store through the admin socket, before the store closes.
func (d *Daemon) endShares(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sharesLimit)
	defer cancel()
	if err := d.admin.EndShares(ctx); err != nil {
		d.log.Warn("closing the store although requests are in progress", zap.Error(err))
	}
}

// teardown closes the layers from the top down.
func (d *Daemon) teardown(ctx context.Context, keep bool) error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if d.opts.NoMount {
		d.files.Close() //nolint:contextcheck // an end has no caller to be interrupted by
	}
	note("close the store", d.store.Close(ctx, objects.CloseOptions{Keep: keep}))
	if cerr := d.meta.Close(); keep {
		note("close the records", cerr)
	} else if cerr != nil {
		d.log.Warn("could not close the records before removing them", zap.Error(cerr))
	}
	note("end the guard", d.guard.Close())
	note("close the engine", d.engine.Close())
	note("close the devices", d.closeDevices(keep))
	if !keep && len(errs) == 0 {
		note("remove the records", d.opts.Places.RemoveMetadata())
	}
	return errors.Join(errs...)
}

// destroyer is a device whose memory outlives the process unless it is destroyed.
type destroyer interface{ Destroy() error }

func (d *Daemon) closeDevices(keep bool) error {
	var errs []error
	for _, dev := range d.raw {
		if t, ok := dev.(destroyer); ok && !keep {
			errs = append(errs, t.Destroy())
			continue
		}
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}

// raiseFileLimit raises the limit on open files as far as permitted: each open host file
// uses one.
func raiseFileLimit() {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return
	}
	const wanted = 1 << 20
	if lim.Max < wanted {
		raised := unix.Rlimit{Cur: wanted, Max: wanted}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			return
		}
	}
	lim.Cur = lim.Max
	unix.Setrlimit(unix.RLIMIT_NOFILE, &lim) //nolint:errcheck // the daemon works with a lower limit
}
