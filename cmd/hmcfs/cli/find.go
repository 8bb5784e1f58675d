package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

// daemonFor returns the mount on which a command without paths works (mountFor), and a client of its
// daemon.
func (a *app) daemonFor(ctx context.Context, args []string) (place.Mount, *client.Client, error) {
	m, err := a.mountFor(strings.Join(args, ""))
	if err != nil {
		return m, nil, err
	}
	c, err := a.connect(ctx, m)
	return m, c, err
}

// connect returns a client of the daemon of a mount.
func (a *app) connect(ctx context.Context, m place.Mount) (*client.Client, error) {
	c, _, err := a.findDaemon(ctx, m)
	return c, err
}

// hearRevived is hear, and waits for a daemon that its holder is starting again.
func hearRevived(ctx context.Context, c *client.Client, p place.Paths) (v adminapi.Version, err error) {
	err = c.Revived(ctx, func(ctx context.Context) error {
		v, err = hear(ctx, c, p)
		return err
	})
	return v, err
}

// findDaemon is connect, and also returns the daemon's paths, of which only the runtime
// directory may be known.
func (a *app) findDaemon(ctx context.Context, m place.Mount) (*client.Client, place.Paths, error) {
	places, last := a.host().Find(m.MountPoint, m.Owner())
	for _, p := range places {
		c := client.NewOf(p.Socket(), m.Owner())
		v, err := hearRevived(ctx, c, p)
		if err == nil && v.MountPoint != m.MountPoint {
			err = fmt.Errorf("%s is the socket of %s: %w", c.Socket(), v.MountPoint, client.ErrNoDaemon)
		}
		if err == nil {
			return c, p, nil
		}
		if _, unresponsive := errors.AsType[*unresponsiveError](err); unresponsive || ctx.Err() != nil {
			// Accessing the mount would be in vain too.
			return nil, place.Paths{}, fmt.Errorf("%s: %w", m.MountPoint, err)
		}
		if last == nil || !errors.Is(err, client.ErrNoDaemon) {
			last = err
		}
	}
	if m.IsServed() {
		return a.findServed(ctx, m, last)
	}
	dead, err := answers(ctx, m, place.IsDead)
	if err != nil {
		return nil, place.Paths{}, fmt.Errorf("%s: %w", m.MountPoint, err)
	}
	if dead {
		return nil, place.Paths{}, fmt.Errorf("the daemon of %s is dead%s; mount it again, or remove the mount: hmcfs umount %s: %w",
			m.MountPoint, kept(places), m.MountPoint, client.ErrNoDaemon)
	}
	// The files of the mount contain the path of its socket, if this user has access.
	if socket, err := answers(ctx, m, socketOf); err == nil && socket != "" {
		c, p := client.NewOf(socket, m.Owner()), place.Paths{MountPoint: m.MountPoint, Runtime: filepath.Dir(socket)}
		if _, err := hear(ctx, c, p); err == nil {
			return c, p, nil
		}
	}
	return nil, place.Paths{}, unfound(a.UID, m, last)
}

// kept says that the holder of a dead daemon has the memory of the mount and starts no daemon any more, and
// why; empty if there is no such holder.
func kept(places []place.Paths) string {
	for _, p := range places {
		h, err := holder.Dial(p.Holder())
		if err != nil {
			continue
		}
		st, err := h.Status()
		if err = errors.Join(err, h.Close()); err != nil || !st.GaveUp {
			continue
		}
		return fmt.Sprintf(", and those that were started after it could not continue (see its log); process %d keeps the memory of its files for the next mount", st.PID)
	}
	return ""
}

// unfound returns a user's error of a search for a daemon, of which last is the last failure. Other users
// than its own may not see where it is: to them it is not dead.
func unfound(uid int, m place.Mount, last error) error {
	if hidden := errors.Is(last, client.ErrNoDaemon) || errors.Is(last, fs.ErrPermission); hidden && !owns(uid, m) {
		last = &client.Error{
			Status: http.StatusForbidden, Code: adminapi.CodeForbidden,
			Text: "only root and the user who mounted it may do this; run the command as one of them",
		}
	}
	return fmt.Errorf("%s: %w", m.MountPoint, last)
}

// owns reports whether a user may do everything with a mount.
func owns(uid int, m place.Mount) bool { return uid == 0 || uid == m.Owner() }

// findServed finds the daemon of a served directory by the socket that the directory names. last
// is the error of the usual places.
func (a *app) findServed(ctx context.Context, m place.Mount, last error) (*client.Client, place.Paths, error) {
	socket := socketOf(m.MountPoint)
	if socket != "" {
		c, p := client.NewOf(socket, m.Owner()), place.Paths{MountPoint: m.MountPoint, Runtime: filepath.Dir(socket)}
		_, err := hear(ctx, c, p)
		if err == nil {
			return c, p, nil
		}
		last = err
	}
	if errors.Is(last, client.ErrNoDaemon) && (socket != "" || owns(a.UID, m)) {
		return nil, place.Paths{}, fmt.Errorf("the daemon of %s is dead; start it again: hmcfs serve %s, or remove what it left: hmcfs umount %s: %w",
			m.MountPoint, m.MountPoint, m.MountPoint, last)
	}
	return nil, place.Paths{}, unfound(a.UID, m, last)
}

// socketOf reads the path of the admin socket from the mount's files.
func socketOf(mountPoint string) string {
	data, err := os.ReadFile(filepath.Join(mountPoint, ".hmcfs", "config"))
	if err != nil {
		return ""
	}
	var c struct {
		Socket string `json:"socket"`
	}
	if json.Unmarshal(data, &c) != nil {
		return ""
	}
	return c.Socket
}
