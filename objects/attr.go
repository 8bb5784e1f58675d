package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// maxSize is the largest size of an object: the largest offset that lseek can return.
const maxSize = 1<<63 - 1

// attributes reads and changes inodes: their records, overlaid with newer values of the
// objects in use.
type attributes struct {
	meta    *metadata.Store
	log     *zap.Logger
	tiers   tiers
	table   *table
	notices *notices
}

// get returns the current state of an inode, also of one that is unlinked but
// referenced.
func (as *attributes) get(ctx context.Context, ino Ino) (Attr, error) {
	// The record of an object is written before it leaves memory, so if it is not loaded
	// now, the record is complete.
	o := as.table.pinLoaded(ino)
	if o != nil {
		defer as.table.unpin(ctx, o, pinUse)
	}
	in, err := as.meta.Get(ctx, ino)
	if errors.Is(err, metadata.ErrNotExist) {
		if orphan, ok := as.table.orphanOf(ino); ok {
			return as.overlaid(orphan, o)
		}
	}
	if err != nil {
		return Attr{}, fmt.Errorf("attributes of inode %d: %w", ino, err)
	}
	return as.sureIfLost(ctx, in, o)
}

// sureIfLost is overlaid for a record that was just read. A host file is removed after
// its record, so a missing file may mean that the inode has been removed since.
//
// Errors: metadata.ErrNotExist.
func (as *attributes) sureIfLost(ctx context.Context, in metadata.Inode, o *object) (Attr, error) {
	a, err := as.overlaid(in, o)
	if err != nil || a.State != StateLost {
		return a, err
	}
	if _, err = as.meta.Get(ctx, in.Ino); errors.Is(err, metadata.ErrNotExist) {
		if _, orphan := as.table.orphanOf(in.Ino); orphan {
			err = nil
		}
	}
	if err != nil {
		return Attr{}, fmt.Errorf("attributes of inode %d: %w", in.Ino, err)
	}
	return a, nil
}

// of returns the current state of an inode from its record, which may have been read
// some time ago.
//
// Errors: metadata.ErrNotExist for a file that has been removed since.
func (as *attributes) of(ctx context.Context, in metadata.Inode) (Attr, error) {
	if !in.IsRegular() {
		return as.overlaid(in, nil)
	}
	if o := as.table.pinLoaded(in.Ino); o != nil {
		defer as.table.unpin(ctx, o, pinUse)
		return as.overlaid(in, o)
	}
	t, err := as.tiers.named(in.Device)
	if err != nil {
		return Attr{}, err
	}
	if t.Files == nil {
		// A handle closed since may have written the record after it was read.
		if now, failure := as.meta.Get(ctx, in.Ino); failure == nil && now.Device == in.Device {
			in = now
		}
	}
	return as.sureIfLost(ctx, in, nil)
}

// overlaid overlays a record with the values of the object or, if it is not loaded,
// with those of its host file.
func (as *attributes) overlaid(in metadata.Inode, o *object) (Attr, error) {
	a := Attr{Inode: in, State: StateLive}
	if !in.IsRegular() {
		return a, nil
	}
	t, err := as.tiers.named(in.Device)
	if err != nil {
		return Attr{}, err
	}
	if o != nil {
		err = o.overlay(&a.Inode)
	} else if t.Files != nil && !IsLost(in, t.Epoch()) {
		var st unix.Stat_t
		var ok bool
		if st, ok, err = content.StatHostFile(t, uint64(in.Ino)); ok {
			overlayStat(&a.Inode, st)
		} else if err == nil && in.Bound == metadata.Unbound {
			a.Epoch = t.PastEpoch()
		}
	}
	if err != nil {
		return Attr{}, err
	}
	a.Resident = a.Allocated
	switch {
	case IsLost(a.Inode, t.Epoch()):
		a.State, a.Resident = StateLost, 0
	case a.Bound == metadata.BoundLive:
		a.State = StateBound
	}
	return a, nil
}

// Attr returns the current state of an inode, also of one that is unlinked but
// referenced.
func (s *Store) Attr(ctx context.Context, ino Ino) (Attr, error) { return s.attrs.get(ctx, ino) }

// SetAttr changes attributes; a change of the size also changes the content.
func (s *Store) SetAttr(ctx context.Context, ino Ino, c Change) (Attr, error) {
	before, err := s.attrs.get(ctx, ino)
	if err != nil {
		return Attr{}, err
	}
	if c.Size != nil && !before.IsRegular() {
		return Attr{}, fmt.Errorf("can't set the size of inode %d, which is not a regular file: %w", ino, ErrInvalid)
	}
	if !before.IsRegular() || c.Size == nil && c.Atime == nil && c.Mtime == nil {
		return s.attrs.setRecord(ctx, ino, c)
	}
	o, err := s.table.pin(ctx, ino, pinUse)
	if err != nil {
		return Attr{}, err
	}
	defer s.table.unpin(ctx, o, pinUse)
	var after Attr
	err = o.setAttr(ctx, c, func() (err error) {
		if c.Size != nil && *c.Size == 0 && before.Size > 0 {
			if err = s.headers.forgetTensor(ctx, ino); err != nil {
				return err
			}
		}
		after, err = s.attrs.setRecord(ctx, ino, c)
		return err
	})
	if err == nil && before.State == StateLost {
		s.keyed.inodeCame(ctx, ino)
	}
	return after, err
}

// setRecord changes the record or, for an orphan, which has none, its entry in the
// table.
func (as *attributes) setRecord(ctx context.Context, ino Ino, c Change) (Attr, error) {
	apply := func(in *metadata.Inode) error {
		c.apply(in, as.meta.Now())
		return nil
	}
	if c.Size == nil { // a new size is a change of data, which needs no space for metadata
		if err := as.meta.Room(ctx); err != nil {
			return Attr{}, fmt.Errorf("set attributes of inode %d: %w", ino, err)
		}
	}
	in, err := as.meta.Update(ctx, ino, apply)
	if errors.Is(err, metadata.ErrNotExist) {
		var ok bool
		switch in, ok, err = as.table.changeOrphan(ino, apply); {
		case !ok:
			err = metadata.ErrNotExist
		case err == nil && c.Size == nil && as.table.isHeld(ino):
			err = as.meta.HoldNameless(ctx, in) // again, for the process that follows
		}
		as.notices.send(Notice{Ino: ino})
	}
	if err != nil {
		return Attr{}, fmt.Errorf("set attributes of inode %d: %w", ino, err)
	}
	return as.of(ctx, in)
}

// apply changes an inode's fields. The content holds the authoritative size; the record
// gets it too, in case the daemon dies before the object is saved.
func (c Change) apply(in *metadata.Inode, now metadata.Timespec) {
	if c.Mode != nil {
		in.Mode = in.Mode.Type() | c.Mode.Perm()
	}
	assign(&in.UID, c.UID)
	assign(&in.GID, c.GID)
	assign(&in.Atime, c.Atime)
	assign(&in.Mtime, c.Mtime)
	assign(&in.Size, c.Size)
	if c.KillPriv {
		in.Mode = withoutSetID(in.Mode)
	}
	in.Ctime = now
	assign(&in.Ctime, c.Ctime)
}

// assign sets a variable, unless the value is nil.
func assign[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

const (
	modeSetUID    metadata.Mode = 0o4000
	modeSetGID    metadata.Mode = 0o2000
	modeGroupExec metadata.Mode = 0o010
)

// withoutSetID clears the bits that a write by another user clears: set-user-id, and
// set-group-id unless it means mandatory locking (no group execution).
func withoutSetID(m metadata.Mode) metadata.Mode {
	m &^= modeSetUID
	if m&modeGroupExec != 0 {
		m &^= modeSetGID
	}
	return m
}

// killPriv clears set-id bits of an inode that has any.
func (as *attributes) killPriv(ctx context.Context, ino Ino) error {
	a, err := as.get(ctx, ino)
	if err != nil || withoutSetID(a.Mode) == a.Mode {
		return err
	}
	_, err = as.setRecord(context.WithoutCancel(ctx), ino, Change{KillPriv: true})
	return err
}
