package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a *app) umountVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "umount [--keep] [--force] MOUNTPOINT",
		Aliases: []string{"unmount"},
		Short:   "Unmount, and free the memory",
		Long: "Unmount and return when the daemon has cleaned up and ended. All objects are freed,\n" +
			"as with tmpfs, unless --keep leaves the host tier and the records for the next mount.\n" +
			"A mount whose daemon is dead is taken away; what a next mount can use stays.",
		Args: arguments(1, 1, "one MOUNTPOINT"),
	}
	var keep, force, lazy bool
	cmd.Flags().BoolVar(&keep, "keep", false, "Leave the host tier and the records for the next mount.")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "Unmount even when the mount is in use: whoever has files open gets 5 s to finish.")
	cmd.Flags().BoolVarP(&lazy, "lazy", "l", false, "The same as --force.")
	cmd.RunE = running(func(ctx context.Context, args []string) error {
		return a.umount(ctx, args[0], adminapi.UmountRequest{Keep: keep, Lazy: force || lazy})
	})
	return cmd
}

func (a *app) umount(ctx context.Context, path string, r adminapi.UmountRequest) error {
	mountPoint, err := place.Absolute(path)
	if err != nil {
		return err
	}
	m, found, err := place.MountAt(mountPoint)
	switch {
	case err != nil:
		return err
	case !found:
		return a.umountNameless(ctx, mountPoint, r)
	case !m.IsHMCFS():
		return notMounted("%s is mounted, but with %s, not with hmcfs", mountPoint, m.Type)
	}
	c, err := a.connect(ctx, m)
	if errors.Is(err, client.ErrNoDaemon) {
		return a.umountDead(ctx, m, r.Lazy)
	}
	if err != nil {
		return err
	}
	return a.umountLiving(ctx, c, m, r)
}

// umountNameless ends a daemon whose mount is not in this mount namespace:
// it was taken away by name, and a container has a copy of it, or it was
// mounted inside of one.
func (a *app) umountNameless(ctx context.Context, mountPoint string, r adminapi.UmountRequest) error {
	for _, p := range a.host().Find(mountPoint, a.UID) {
		c := client.New(p.Socket())
		st, err := c.Status(ctx, false)
		if err != nil || st.MountPoint != mountPoint {
			continue
		}
		return a.umountLiving(ctx, c, place.Mount{MountPoint: mountPoint}, r)
	}
	if m, found, err := place.MountOf(mountPoint); err == nil && found {
		return notMounted("%s is no mount point but lies on one; unmount that: hmcfs umount %s", mountPoint, m.MountPoint)
	}
	return notMounted("%s is not mounted", mountPoint)
}

func (a *app) umountLiving(ctx context.Context, c *client.Client, m place.Mount, r adminapi.UmountRequest) error {
	st, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	_, err = c.Umount(ctx, r)
	switch {
	case client.IsBusy(err):
		return busy(m.MountPoint)
	case err != nil:
		return fmt.Errorf("unmount %s: %w", m.MountPoint, err)
	}
	if err := place.AwaitEnd(ctx, st.PID, lockOf(st), endLimit); err != nil {
		return fmt.Errorf("%s is unmounted, but its daemon goes on: %w", m.MountPoint, err)
	}
	return nil
}

// endLimit is how long a daemon may take from its answer to its end.
const endLimit = 30 * time.Second

func lockOf(st adminapi.Status) string {
	return place.Paths{Runtime: st.RuntimeDir}.Lock()
}

// umountDead takes away a mount that nobody serves. The records and the host
// tier stay: they are what the next mount goes on with.
func (a *app) umountDead(ctx context.Context, m place.Mount, lazy bool) error {
	if err := place.Detach(m.MountPoint, lazy || place.IsDead(m.MountPoint)); err != nil {
		if errors.Is(err, place.ErrBusy) {
			return busy(m.MountPoint)
		}
		return err
	}
	for _, p := range a.host().Find(m.MountPoint, m.Owner()) {
		holder, living, err := place.ReadHolder(p.Lock())
		if err == nil && living && holder.MountPoint == m.MountPoint {
			// It only did not answer; it ends by itself without its mount.
			return place.AwaitEnd(ctx, holder.PID, p.Lock(), endLimit)
		}
		if err == nil {
			p.CleanSocket()
		}
	}
	a.note("the daemon of %s was dead; the mount is gone, and a next mount there finds what can be saved", m.MountPoint)
	return nil
}

// busy names who holds a mount.
func busy(mountPoint string) error {
	users := place.Users(mountPoint)
	if len(users) == 0 {
		return fmt.Errorf("%s is in use by a process that you may not see; end it, or unmount with --force", mountPoint)
	}
	const most = 5
	var texts []string
	for _, u := range users[:min(len(users), most)] {
		texts = append(texts, u.String())
	}
	if more := len(users) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%s is in use: %s; end them, or unmount with --force", mountPoint, strings.Join(texts, ", "))
}
