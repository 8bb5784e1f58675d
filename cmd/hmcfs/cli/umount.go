package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a *app) umountVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "umount [--keep] [--force] MOUNTPOINT",
		Aliases: []string{"unmount"},
		Short:   "Unmount, or end a served daemon, and free the memory",
		Long: "Unmount, and return when the daemon has cleaned up and exited. All objects are freed, as with\n" +
			"tmpfs, unless --keep leaves the host tier and the records for the next mount. If the daemon is\n" +
			"dead, its mount is removed, and what the next mount can use stays. If the daemon runs but does\n" +
			"not answer, --force removes the mount. A daemon started by hmcfs serve ends in the same way;\n" +
			"MOUNTPOINT then is its directory. It must be given, also if there is only one, since its memory is freed.",
		Args: arguments(1, 1, "one MOUNTPOINT"),
	}
	var keep, force, lazy bool
	cmd.Flags().BoolVar(&keep, "keep", false, "Leave the host tier and the records for the next mount.")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "Unmount even if the mount is in use: processes with open files get 5 s to finish.")
	cmd.Flags().BoolVarP(&lazy, "lazy", "l", false, "Same as --force.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.umount(ctx, args[0], adminapi.UmountRequest{Keep: keep, Lazy: force || lazy})
	})
}

func (a *app) umount(ctx context.Context, path string, r adminapi.UmountRequest) error {
	mountPoint, err := place.Absolute(path)
	if err != nil {
		return err
	}
	m, found, err := place.MountAt(mountPoint)
	if served, is := servedAt(mountPoint); is && err == nil {
		return a.end(ctx, served, r)
	}
	switch {
	case err != nil:
		return err
	case !found:
		return a.umountNameless(ctx, mountPoint, r)
	case !m.IsHMCFS():
		return notMounted("%s is a mount of type %s, not of hmcfs", mountPoint, m.Type)
	}
	c, p, err := a.findDaemon(ctx, m)
	if errors.Is(err, client.ErrNoDaemon) {
		return a.umountDead(ctx, m, r.Lazy)
	}
	if err == nil {
		err = a.umountLiving(ctx, c, p, r)
		if client.IsDeath(err) && c.Revives(ctx) { // it died while it was asked
			return a.umount(ctx, path, r)
		}
	}
	if unresponsive, ok := errors.AsType[*unresponsiveError](err); ok && r.Lazy {
		return a.umountUnresponsive(ctx, m, unresponsive)
	}
	return err
}

// end ends a daemon without a mount, or removes what a dead one left in its directory.
func (a *app) end(ctx context.Context, m place.Mount, r adminapi.UmountRequest) error {
	c, p, err := a.findDaemon(ctx, m)
	if errors.Is(err, client.ErrNoDaemon) {
		if !owns(a.UID, m) {
			return err
		}
		place.CleanServed(m.MountPoint)
		a.note("the daemon of %s was dead; the next one there recovers what it can", m.MountPoint)
		return nil
	}
	if err != nil {
		return err
	}
	return a.umountLiving(ctx, c, p, r)
}

// umountUnresponsive has the kernel remove a mount whose daemon does not answer. The daemon
// still runs: its resources are freed when it resumes, or is killed.
func (a *app) umountUnresponsive(ctx context.Context, m place.Mount, unresponsive *unresponsiveError) error {
	cutErr, err := place.Wrest(m)
	if err != nil {
		return fmt.Errorf("the daemon does not answer, and the kernel cannot remove the mount: %w", err)
	}
	a.note("the daemon of %s does not answer; the kernel has removed the mount", m.MountPoint)
	if cutErr != nil {
		a.note("processes with open files there wait until the daemon resumes or exits: %v", cutErr)
	} else {
		a.note("the connection is cut; files that are still open report errors")
	}
	switch err := place.AwaitEnd(ctx, unresponsive.pid, unresponsive.lock, unresponsiveEndLimit); {
	case ctx.Err() != nil:
		return err
	case err != nil && unresponsive.pid > 0:
		a.note("process %d still holds its memory; it cleans up and exits once it is resumed (kill -CONT %d), and its memory is also freed when it is killed (kill -KILL %d)",
			unresponsive.pid, unresponsive.pid, unresponsive.pid)
	}
	return nil
}

// umountNameless shuts down a daemon whose mount is not in this mount namespace: it was
// unmounted by name while a container has a copy of it, or it was mounted inside a
// container.
func (a *app) umountNameless(ctx context.Context, mountPoint string, r adminapi.UmountRequest) error {
	places, _ := a.host().Find(mountPoint, a.UID)
	for _, p := range places {
		c := client.NewOf(p.Socket(), a.UID)
		_, err := hear(ctx, c, p)
		if unresponsive, ok := errors.AsType[*unresponsiveError](err); ok && unresponsive.pid > 0 {
			return notMounted("%s is not mounted, but process %d, which served it, has not exited and does not answer; resume it (kill -CONT %d), or kill it (kill -KILL %d)",
				mountPoint, unresponsive.pid, unresponsive.pid, unresponsive.pid)
		}
		st, err := c.Status(ctx, false)
		if err != nil || st.MountPoint != mountPoint {
			continue
		}
		return a.umountLiving(ctx, c, p, r)
	}
	if m, found, err := place.MountOf(mountPoint); err == nil && found {
		return notMounted("%s is not a mount point but is on one; unmount that: hmcfs umount %s", mountPoint, m.MountPoint)
	}
	if err := client.Untrusted(mountPoint); err != nil {
		return notMounted("%s is not mounted: %w", mountPoint, err)
	}
	return notMounted("%s is not mounted", mountPoint)
}

func (a *app) umountLiving(ctx context.Context, c *client.Client, p place.Paths, r adminapi.UmountRequest) error {
	var st adminapi.Status
	var done adminapi.UmountAnswer
	err := whileResponsive(ctx, c, p, func(ctx context.Context) (err error) {
		if st, err = c.Status(ctx, false); err == nil {
			done, err = c.Umount(ctx, r)
		}
		return err
	})
	switch {
	case client.IsBusy(err):
		return busy(p.MountPoint)
	case err != nil:
		return fmt.Errorf("unmount %s: %w", p.MountPoint, err)
	}
	for _, text := range done.Copies {
		a.note("%s; that copy of the mount has been cut off, and reports errors until it is unmounted there", text)
	}
	lock := place.Paths{Runtime: st.RuntimeDir}.Lock()
	if err := place.AwaitEnd(ctx, st.PID, lock, endLimit); err != nil {
		return fmt.Errorf("%s is unmounted, but its daemon has not exited: %w", p.MountPoint, err)
	}
	return nil
}

const (
	// endLimit bounds the time between a daemon's answer and its end.
	endLimit = 30 * time.Second
	// unresponsiveEndLimit bounds the wait for a daemon whose mount was removed because it
	// did not answer: it may only have been slow.
	unresponsiveEndLimit = 2 * time.Second
)

// umountDead removes a mount without a daemon. The records and the host tier stay, as the
// next mount continues with them.
func (a *app) umountDead(ctx context.Context, m place.Mount, lazy bool) error {
	held, _ := a.host().Find(m.MountPoint, m.Owner())
	for _, p := range held {
		if err := holder.Finish(p.Holder()); err != nil {
			return fmt.Errorf("end the process that keeps %s: %w", m.MountPoint, err)
		}
	}
	if err := place.Detach(m.MountPoint, lazy || place.IsDead(m.MountPoint)); err != nil {
		if errors.Is(err, place.ErrBusy) {
			return busy(m.MountPoint)
		}
		return err
	}
	for _, p := range held {
		daemon, living, err := place.ReadHolder(p.Lock())
		if err == nil && living && daemon.MountPoint == m.MountPoint {
			// The daemon was alive but did not answer; without its mount it ends.
			return place.AwaitEnd(ctx, daemon.PID, p.Lock(), endLimit)
		}
		if err == nil {
			p.CleanSocket()
		}
	}
	a.note("the daemon of %s was dead; the mount is removed, and the next mount there recovers what it can", m.MountPoint)
	return nil
}

// busy returns an error that names the processes that use a mount.
func busy(mountPoint string) error {
	if below := mountsBelow(mountPoint); len(below) > 0 {
		return fmt.Errorf("%s is in use: other file systems are mounted below it; unmount them first: %s", mountPoint, strings.Join(below, ", "))
	}
	users := place.Users(mountPoint)
	if len(users) == 0 {
		return fmt.Errorf("%s is in use by a process that you are not permitted to see; end it, or unmount with --force", mountPoint)
	}
	const most = 5
	texts := mapped(users[:min(len(users), most)], place.User.String)
	if more := len(users) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%s is in use: %s; end them, or unmount with --force", mountPoint, strings.Join(texts, ", "))
}

// mountsBelow returns the mount points below a mount, the deepest first.
func mountsBelow(mountPoint string) []string {
	all, _ := place.Mounts() // without a table, none is known
	var below []string
	for _, m := range slices.Backward(all) {
		if strings.HasPrefix(m.MountPoint, mountPoint+"/") {
			below = append(below, m.MountPoint)
		}
	}
	return below
}
