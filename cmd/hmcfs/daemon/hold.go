package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs"
)

// ownLimit bounds the wait for a holder to notice that its daemon has died.
const ownLimit = 2 * time.Second

// findHolder connects to the holder of a daemon that has died, if there is one, or starts one
// unless the options say otherwise. The caller has the lock of the runtime directory, so no daemon lives.
func (d *Daemon) findHolder(ctx context.Context, back *undo) error {
	p := d.opts.Places
	earlier, err := own(ctx, p.Holder())
	if err != nil {
		d.inherited = true
		return fmt.Errorf("%s: %w", p.MountPoint, err)
	}
	if earlier != nil {
		d.inherited = true
		if err = d.useHeld(earlier); err != nil {
			return errors.Join(err, earlier.Close())
		}
		d.inherited = d.holder != nil // useHeld may have ended it
	}
	launches := d.holder == nil && !d.opts.Settings.NoHold && d.opts.Holder != nil
	if launches {
		if err = fs.CanResume(); err != nil {
			d.log.Info("the death of this daemon ends the mount", zap.Error(err))
			launches = false
		}
	}
	if launches && d.opts.Revived {
		return fmt.Errorf("%s: the process that has started this daemon again has ended", p.MountPoint)
	}
	if launches {
		if d.holder, err = holder.Launch(d.opts.Holder(), p.Holder()); err != nil {
			return err
		}
		if err = d.holder.Own(); err != nil {
			return errors.Join(err, d.holder.Close())
		}
	}
	if d.holder == nil {
		return nil
	}
	back.push(func() {
		if err := d.leaveHolder(); err != nil {
			d.log.Warn("could not leave the holder", zap.Error(err))
		}
	})
	return nil
}

// leaveHolder leaves the holder after a start that has failed. It goes on to keep what a dead daemon
// left, but not a mount that this one has made and undone.
func (d *Daemon) leaveHolder() error {
	switch {
	case !d.inherited:
		return d.holder.End()
	case d.resumes:
		return d.holder.Close()
	}
	return errors.Join(fs.DropHeld(d.holder), d.holder.Close())
}

// watchHolder logs the end of the holder, unless it comes with that of the daemon.
func (d *Daemon) watchHolder() {
	status, err := d.holder.Status()
	if err != nil {
		d.log.Error("the holder does not answer; the next death of the daemon ends the mount", zap.Error(err))
		return
	}
	fd, err := unix.PidfdOpen(status.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		d.log.Warn("can't watch the holder", zap.Error(err))
		return
	}
	process := os.NewFile(uintptr(fd), "holder")
	defer func() { _ = process.Close() }() // nothing was written to it
	raw, err := process.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, fault := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || fault != nil && !errors.Is(fault, unix.EINTR)
		})
	}
	select {
	case <-d.over:
	default:
		d.log.Error("the holder has ended; the next death of the daemon ends the mount", zap.Int("holder", status.PID), zap.Error(err))
	}
}

// own makes this daemon the owner of the holder at a socket, if there is one. The holder may not have noticed yet that the
// daemon before has died, or may be dying itself.
func own(ctx context.Context, socket string) (*holder.Client, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(ownLimit); ; {
		h, err := holder.Dial(socket)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // there is none
		}
		if err == nil {
			if err = h.Own(); err == nil {
				return h, nil
			}
			_ = h.Close() // a refusal, or the end of the connection, is the error
		}
		if time.Now().After(limit) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// useHeld decides what is done with what a holder keeps: the mount is continued if it still exists,
// and nothing is if there is to be no holder any more.
func (d *Daemon) useHeld(earlier *holder.Client) error {
	held, err := fs.IsHeld(earlier)
	if err != nil {
		return err
	}
	at, found, err := place.MountAt(d.opts.Places.MountPoint)
	if err != nil {
		return err
	}
	there := found && at.IsHMCFS()
	switch {
	case d.opts.Revived && held && !there:
		return errors.Join(fmt.Errorf("%s was unmounted while no daemon lived", d.opts.Places.MountPoint), earlier.End())
	case d.opts.Settings.NoHold:
		return earlier.End()
	}
	d.holder, d.resumes = earlier, held && there
	if d.resumes {
		return nil
	}
	return fs.DropHeld(earlier) // a new mount, with the memory of the one before
}

const (
	// sessionsLimit is the time within which clients come back to the daemon that follows a dead one.
	sessionsLimit = time.Minute
	// absentLimit is the time for which a daemon has others wait for the memory of sessions: their clients
	// look for the daemon all the time.
	absentLimit = 15 * time.Second
)

// limitIf returns a limit; 0 if nobody comes back.
func limitIf(comes bool, limit time.Duration) time.Duration {
	if comes {
		return limit
	}
	return 0
}

// keeper returns the holder as what it is to the layers below; nil without one.
func (d *Daemon) keeper() devices.DescriptorStore {
	if d.holder == nil {
		return nil
	}
	return d.holder
}

// mount mounts, or continues the mount that the holder keeps.
func (d *Daemon) mount(ctx context.Context, o fs.Options) (*fs.Server, error) {
	if d.holder != nil {
		o.Keeper = d.holder
	}
	mount := fs.Mount
	if d.resumes {
		mount = fs.Resume
	}
	server, err := mount(ctx, o)
	switch {
	case err != nil:
	case d.sameNode: // programs of other nodes may have files open that have no name any more
		calm := context.WithoutCancel(ctx)
		time.AfterFunc(d.opts.Settings.NodeTimeout, func() {
			d.others.elsewhere.GiveUp(calm)
			d.store.ReleaseUnclaimed(calm)
		})
	default:
		d.store.ReleaseUnclaimed(ctx)
	}
	return server, err
}
