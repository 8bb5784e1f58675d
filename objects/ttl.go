package objects

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

// Expire sets when a key's object expires; zero is never. When it expires, the file is
// removed, whether or not it is in the directory of keyed objects.
//
// Errors: metadata.ErrNotExist; ErrForbidden for a file that the holder's user may not
// write or may not remove.
func (h *Holder) Expire(ctx context.Context, key string, at metadata.Timespec) error {
	if err := h.begin(); err != nil {
		return err
	}
	for {
		in, err := h.store.index.find(ctx, key)
		if err != nil {
			return err
		}
		if in.tensor != "" {
			return fmt.Errorf("key %q names a tensor of %s, which has no time to live of its own; set that of the file: %w", key, in.Name, ErrUnsupported)
		}
		err = h.store.keyed.expireAt(ctx, in.Ino, at, func(now metadata.Inode) error {
			if now.Key != key {
				return metadata.ErrNotExist
			}
			return h.store.keyed.mayEnd(ctx, h.who, now, at)
		})
		if errors.Is(err, metadata.ErrNotExist) {
			continue // look the key up again: it may name another object
		}
		if err != nil {
			return fmt.Errorf("set the time to live of key %q: %w", key, err)
		}
		return nil
	}
}

// Keep removes the time to live of a file that the holder's user may write.
//
// Errors: metadata.ErrNotExist, also for a file whose time is over; ErrForbidden;
// ErrClosed.
func (h *Holder) Keep(ctx context.Context, ino Ino) error {
	if err := h.begin(); err != nil {
		return err
	}
	err := h.store.keyed.expireAt(ctx, ino, metadata.Timespec{}, func(now metadata.Inode) error {
		return h.store.access.mayUse(ctx, h.who, &now, PermWrite)
	})
	if err != nil {
		return fmt.Errorf("remove the time to live of file %d: %w", ino, err)
	}
	return nil
}

// mayEnd checks whether a user may set the expiry of a file, which removes it then;
// zero is never.
//
// Errors: ErrForbidden.
func (ks *keyed) mayEnd(ctx context.Context, who Caller, in metadata.Inode, at metadata.Timespec) error {
	err := ks.access.mayUse(ctx, who, &in, PermWrite)
	if err == nil && at != (metadata.Timespec{}) {
		err = ks.access.mayRemove(ctx, who, in)
	}
	return err
}

// expireAt sets when a file expires, if may returns no error. The sweeper does not
// remove the file meanwhile.
func (ks *keyed) expireAt(ctx context.Context, ino Ino, at metadata.Timespec, may func(now metadata.Inode) error) error {
	for {
		in, err := ks.meta.Get(ctx, ino)
		if err != nil {
			return err
		}
		unlock := ks.names.lock(in.Parent, in.Parent)
		now, err := ks.meta.Get(ctx, ino)
		if err == nil && now.Parent != in.Parent {
			unlock()
			continue
		}
		if err == nil && ks.index.isOver(now) {
			err = metadata.ErrNotExist
		}
		if err == nil {
			err = may(now)
		}
		if err == nil {
			err = ks.meta.Expire(ctx, ino, at)
		}
		unlock()
		if err == nil {
			ks.expiry.note(at)
			ks.changes.tell(ino, false)
		}
		return err
	}
}

// maxTTL is the longest time to live that can be set, in seconds.
const maxTTL = 1 << 40

// SetTTL sets a file's expiry from the text of user.hmc.ttl: whole seconds from now on.
//
// Errors: ErrInvalid; ErrUnsupported for an inode that is not a regular file;
// ErrForbidden for a file that the user may not write or may not remove; those of the
// flags.
func (s *Store) SetTTL(ctx context.Context, who Caller, ino Ino, text string, flags metadata.XattrFlags) error {
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	if !a.IsRegular() {
		return fmt.Errorf("attribute %s of inode %d: %w", XattrTTL, ino, ErrUnsupported)
	}
	seconds, err := strconv.ParseInt(strings.TrimSuffix(text, "s"), 10, 64)
	none := a.Expires == (metadata.Timespec{})
	switch {
	case err != nil || seconds < 1 || seconds > maxTTL:
		return fmt.Errorf("set %s to %q; use whole seconds, such as 20 or 20s: %w", XattrTTL, text, ErrInvalid)
	case flags&metadata.XattrCreate != 0 && !none:
		return fmt.Errorf("set %s: %w", XattrTTL, metadata.ErrExist)
	case flags&metadata.XattrReplace != 0 && none:
		return fmt.Errorf("set %s: %w", XattrTTL, metadata.ErrNoXattr)
	}
	at := s.meta.Now()
	at.Sec += seconds
	return s.keyed.changeTTL(ctx, ino, at, func(now metadata.Inode) error { return s.keyed.mayEnd(ctx, who, now, at) })
}

func (ks *keyed) removeTTL(ctx context.Context, ino Ino) error {
	a, err := ks.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	if a.Expires == (metadata.Timespec{}) {
		return fmt.Errorf("remove %s: %w", XattrTTL, metadata.ErrNoXattr)
	}
	return ks.changeTTL(ctx, ino, metadata.Timespec{}, func(metadata.Inode) error { return nil })
}

func (ks *keyed) changeTTL(ctx context.Context, ino Ino, at metadata.Timespec, may func(metadata.Inode) error) error {
	err := ks.expireAt(ctx, ino, at, may)
	if err != nil {
		return fmt.Errorf("change %s: %w", XattrTTL, err)
	}
	return nil
}

// ttlText returns the seconds that an inode has left, rounded up; empty for one that
// does not expire.
func (s *Store) ttlText(in metadata.Inode) string {
	if in.Expires == (metadata.Timespec{}) {
		return ""
	}
	left := in.Expires.Time().Sub(s.meta.Now().Time())
	return strconv.FormatInt(int64((max(left, 0)+time.Second-1)/time.Second), 10)
}
