package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// grace is the time that programs which still have files open may continue after a lazy
// unmount, before the connection is cut.
const grace = 5 * time.Second

// unmountLimit bounds one attempt of a plain unmount.
const unmountLimit = 10 * time.Second

// Umount passes the request to Run and returns when everything is cleaned up, or with
// admin.ErrBusy.
func (d *Daemon) Umount(ctx context.Context, r adminapi.UmountRequest) (adminapi.UmountAnswer, error) {
	call := umountCall{request: r, reply: make(chan umountReply, 1)}
	select {
	case d.asked <- call:
	case <-d.over:
		return adminapi.UmountAnswer{}, errors.New("the mount is already being unmounted")
	case <-ctx.Done():
		return adminapi.UmountAnswer{}, ctx.Err()
	}
	got := <-call.reply
	return got.answer, got.err
}

// unmount unmounts, and waits until the mount has ended. Without a mount nothing keeps the
// daemon: sessions don't, as they don't keep a mount.
func (d *Daemon) unmount(ctx context.Context, lazy bool) error {
	if d.opts.NoMount {
		return nil
	}
	if d.nameless() {
		d.cutNameless(place.Copies(d.dev))
		return nil
	}
	// An unmount by name would unmount the filesystem on top.
	if m, found, err := place.MountAt(d.opts.Places.MountPoint); err == nil && found && !d.isOurs(m) {
		return fmt.Errorf("a %s file system is mounted over %s; unmount that first", m.Type, m.MountPoint)
	}
	ctx, cancel := context.WithTimeout(ctx, unmountLimit)
	defer cancel()
	found := make(chan []place.User, 1)
	go func() { found <- d.seekCopies(ctx, cancel) }()
	err := d.server.Unmount(ctx)
	cancel()
	copies := <-found
	if err == nil {
		d.awaitGone(unmountLimit)
		return nil
	}
	if gaveUp := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled); gaveUp && d.nameless() {
		d.cutNameless(copies)
		return nil
	}
	if !lazy {
		if errors.Is(err, fs.ErrBusy) {
			return fmt.Errorf("%s: %w", d.opts.Places.MountPoint, admin.ErrBusy)
		}
		return err
	}
	return d.detach()
}

// nameless reports whether the mount no longer exists in this mount namespace while the
// kernel keeps its connection: another namespace, such as that of a container that was
// started while it was mounted, has a copy of it. A mount that is covered by another
// filesystem is not nameless.
func (d *Daemon) nameless() bool {
	at, err := place.MountsAt(d.opts.Places.MountPoint)
	if err != nil || slices.ContainsFunc(at, d.isOurs) {
		return false
	}
	select {
	case <-d.gone:
		return false
	default:
		return true
	}
}

// isOurs reports whether a mount at the mount point is this daemon's.
func (d *Daemon) isOurs(m place.Mount) bool {
	return m.IsHMCFS() && (m.Dev == d.dev || d.dev == "")
}

// seekCopies waits until the mount has lost its name while another mount namespace still
// has it: then only that copy keeps the connection open, and giveUp is called to end the
// wait for its end.
func (d *Daemon) seekCopies(ctx context.Context, giveUp context.CancelFunc) []place.User {
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		if !d.nameless() {
			continue
		}
		if copies := place.Copies(d.dev); len(copies) > 0 {
			giveUp()
			return copies
		}
	}
}

// firstLook and longestLook bound the interval between two searches for copies of the
// mount.
const (
	firstLook   = 20 * time.Millisecond
	longestLook = 500 * time.Millisecond
)

// cutNameless cuts a connection that only copies of the mount still use.
func (d *Daemon) cutNameless(copies []place.User) {
	d.copies = nil
	for _, c := range copies {
		d.copies = append(d.copies, c.String())
	}
	d.log.Warn("the mount is removed here, but another mount namespace has a copy; cutting the connection", zap.Strings("copies", d.copies))
	d.abort()
}

// unmountForSure ends the mount in any case: first by a plain unmount, then by detaching
// its name, then by cutting the connection.
func (d *Daemon) unmountForSure(ctx context.Context) {
	if err := d.unmount(ctx, true); err != nil {
		d.log.Warn("unmount failed; cutting the connection", zap.Error(err))
		d.abort()
	}
}

// detach removes the name, gives the users of open files some time, and then cuts the
// connection.
func (d *Daemon) detach() error {
	if err := place.Detach(d.opts.Places.MountPoint, true); err != nil {
		return err
	}
	d.log.Info("mount point detached; waiting for open files", zap.Duration("at_most", grace))
	if !d.awaitGone(grace) {
		d.log.Warn("files are still open; cutting the connection")
		d.abort()
	}
	return nil
}

func (d *Daemon) abort() {
	if err := place.Abort(d.dev); err != nil {
		d.log.Warn("connection can't be cut; it ends with the process", zap.Error(err))
		return
	}
	d.awaitGone(grace)
}

// awaitGone waits until the mount has ended; it returns false if the time limit was
// reached, or Force was closed, first.
func (d *Daemon) awaitGone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-d.gone:
		return true
	case <-timer.C:
		return false
	case <-d.opts.Force:
		return false
	}
}
