package local

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// target is a file that a client receives a publication into. It shows, even after the client
// has ended, whether the client has given it its final name: a file of the store then has a
// different name than when it was registered, and any other file then has a name at all.
type target struct {
	client *Client
	// place is a descriptor that only names the file; nil for a file of the store.
	place *os.File
	// The following fields are for a file of the store.
	ino, parent objects.Ino
	name        string
}

// openTarget makes a target of a client's file.
//
// Errors: objects.ErrInvalid for one that is no regular file, or is outside the mount and has
// a name already.
func (c *Client) openTarget(ctx context.Context, f *os.File) (*target, error) {
	if c.inode != nil {
		if ino, err := c.inode(f); err == nil {
			a, err := c.store.Attr(ctx, ino)
			if err != nil {
				return nil, err
			}
			return &target{client: c, ino: ino, parent: a.Parent, name: a.Name}, nil
		}
	}
	// A descriptor opened for access would be flushed on close, for which its file system may
	// take any time.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the target's descriptor: %w", err)
	}
	t := &target{client: c, place: os.NewFile(uintptr(fd), "target")}
	st, err := t.stat()
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0) {
		err = fmt.Errorf("the target is not a regular file without a name: %w", objects.ErrInvalid)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// stat queries the kernel, and not the file system, which may never answer.
func (t *target) stat() (st unix.Statx_t, err error) {
	err = owner.Control(t.place, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_NLINK, &st)
	})
	return st, err
}

// arrived reports whether the file has been given its name.
func (t *target) arrived(ctx context.Context) bool {
	if t.place != nil {
		st, err := t.stat()
		return err == nil && st.Nlink > 0
	}
	a, err := t.client.store.Attr(ctx, t.ino)
	return err == nil && a.Nlink > 0 && (a.Parent != t.parent || a.Name != t.name)
}

// keep makes a file of the store permanent.
//
// Errors: metadata.ErrNotExist if it was removed.
func (t *target) keep(ctx context.Context) error {
	if t.place != nil {
		return nil
	}
	if err := t.client.holder.Keep(ctx, t.ino); err != nil {
		return fmt.Errorf("keep the file with the received bytes: %w", err)
	}
	return nil
}

func (t *target) close() {
	if t.place != nil {
		_ = t.place.Close() // it only named the file
	}
}

// targetOf returns a target; nil for 0, which means none.
//
// Errors: ErrInvalid.
func (c *Client) targetOf(id hetero.MemoryID) (*target, error) {
	if id == 0 {
		return nil, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.targets[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: no registered target %d", hetero.ErrInvalid, id)
}
