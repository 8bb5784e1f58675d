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

// Expire sets when a key's object ends; zero is never. An object in the
// directory of keyed objects is removed then, any other file too.
//
// Errors: metadata.ErrNotExist; ErrForbidden for what the holder's user may not
// write.
func (h *Holder) Expire(ctx context.Context, key string, at metadata.Timespec) error {
	if err := h.begin(); err != nil {
		return err
	}
	for {
		in, err := h.store.findKey(ctx, key)
		if err != nil {
			return err
		}
		err = h.store.expireAt(ctx, in.Ino, at, func(now metadata.Inode) error {
			if now.Key != key {
				return metadata.ErrNotExist
			}
			if !h.who.may(Attr{Inode: now}, modeWrite) {
				return ErrForbidden
			}
			return nil
		})
		if errors.Is(err, metadata.ErrNotExist) {
			continue // the key tells whether there is another object
		}
		if err != nil {
			return fmt.Errorf("expire key %q: %w", key, err)
		}
		return nil
	}
}

// Keep takes the time to live from a file that the holder's user may write.
//
// Errors: metadata.ErrNotExist, also for one whose time is over; ErrForbidden;
// ErrClosed.
func (h *Holder) Keep(ctx context.Context, ino Ino) error {
	if err := h.begin(); err != nil {
		return err
	}
	err := h.store.expireAt(ctx, ino, metadata.Timespec{}, func(now metadata.Inode) error {
		if !h.who.may(Attr{Inode: now}, modeWrite) {
			return ErrForbidden
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep file %d: %w", ino, err)
	}
	return nil
}

// expireAt sets when a file ends, if may has nothing against it. The sweeper
// does not remove it meanwhile.
func (s *Store) expireAt(ctx context.Context, ino Ino, at metadata.Timespec, may func(now metadata.Inode) error) error {
	for {
		in, err := s.meta.Get(ctx, ino)
		if err != nil {
			return err
		}
		unlock := s.names.lock(in.Parent, in.Parent)
		now, err := s.meta.Get(ctx, ino)
		if err == nil && now.Parent != in.Parent {
			unlock()
			continue
		}
		if err == nil && s.isOver(now) {
			err = metadata.ErrNotExist
		}
		if err == nil {
			err = may(now)
		}
		if err == nil {
			err = s.meta.Expire(ctx, ino, at)
		}
		unlock()
		if err == nil {
			s.keyed.expiry.note(at)
			s.changed(ino, false)
		}
		return err
	}
}

// maxTTL is the longest time to live that can be set, in seconds.
const maxTTL = 1 << 40

// setTTL sets a file's end by user.hmc.ttl: whole seconds from now on.
func (s *Store) setTTL(ctx context.Context, a Attr, text string, flags metadata.XattrFlags) error {
	seconds, err := strconv.ParseInt(strings.TrimSuffix(text, "s"), 10, 64)
	none := a.Expires == (metadata.Timespec{})
	switch {
	case err != nil || seconds < 1 || seconds > maxTTL:
		return fmt.Errorf("set %s to %q; write whole seconds, as 20 or 20s: %w", xattrTTL, text, ErrInvalid)
	case flags&metadata.XattrCreate != 0 && !none:
		return fmt.Errorf("set %s: %w", xattrTTL, metadata.ErrExist)
	case flags&metadata.XattrReplace != 0 && none:
		return fmt.Errorf("set %s: %w", xattrTTL, metadata.ErrNoXattr)
	}
	at := s.now()
	at.Sec += seconds
	return s.changeTTL(ctx, a.Ino, at)
}

// removeTTL lets a file stay for ever.
func (s *Store) removeTTL(ctx context.Context, ino Ino) error {
	a, err := s.Attr(ctx, ino)
	if err != nil {
		return err
	}
	if a.Expires == (metadata.Timespec{}) {
		return fmt.Errorf("remove %s: %w", xattrTTL, metadata.ErrNoXattr)
	}
	return s.changeTTL(ctx, ino, metadata.Timespec{})
}

func (s *Store) changeTTL(ctx context.Context, ino Ino, at metadata.Timespec) error {
	err := s.expireAt(ctx, ino, at, func(metadata.Inode) error { return nil })
	if err != nil {
		return fmt.Errorf("change %s: %w", xattrTTL, err)
	}
	return nil
}

// ttlText is the whole seconds that an inode has left, and what was begun of
// another; empty for one that does not end.
func (s *Store) ttlText(in metadata.Inode) string {
	if in.Expires == (metadata.Timespec{}) {
		return ""
	}
	left := in.Expires.Time().Sub(s.now().Time())
	return strconv.FormatInt(int64((max(left, 0)+time.Second-1)/time.Second), 10)
}
