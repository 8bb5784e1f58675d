package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// withoutXattrs returns ErrNoXattr for an orphan whose extended attributes are not
// held, and otherwise missing, the error of the records.
func (as *attributes) withoutXattrs(ino Ino, name string, missing error) error {
	if _, orphan := as.table.orphanOf(ino); orphan && errors.Is(missing, metadata.ErrNotExist) {
		return fmt.Errorf("attribute %s: %w", name, metadata.ErrNoXattr)
	}
	return missing
}

func (as *attributes) getXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	value, err := as.meta.GetXattr(ctx, ino, name)
	if err != nil {
		err = as.withoutXattrs(ino, name, err)
	}
	return value, err
}

func (as *attributes) setXattr(ctx context.Context, ino Ino, name string, value []byte, flags metadata.XattrFlags) error {
	err := as.meta.SetXattr(ctx, ino, name, value, flags)
	if !errors.Is(err, metadata.ErrNotExist) {
		return err
	}
	held, failed := as.holdNameless(ctx, ino)
	switch {
	case failed != nil:
		return failed
	case !held:
		return err
	}
	return as.meta.SetXattr(ctx, ino, name, value, flags)
}

// holdNameless has the records hold the attributes of a reachable orphan; held is false if it is none.
func (as *attributes) holdNameless(ctx context.Context, ino Ino) (held bool, err error) {
	orphan, held := as.table.holdOrphan(ino, as.xattrsEnd(ctx, ino))
	if held {
		err = as.meta.HoldNameless(ctx, orphan)
	}
	return held, err
}

func (as *attributes) listXattr(ctx context.Context, ino Ino) ([]string, error) {
	names, err := as.meta.ListXattr(ctx, ino)
	if _, orphan := as.table.orphanOf(ino); orphan && errors.Is(err, metadata.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

func (as *attributes) removeXattr(ctx context.Context, ino Ino, name string) error {
	err := as.meta.RemoveXattr(ctx, ino, name)
	if err != nil {
		err = as.withoutXattrs(ino, name, err)
	}
	return err
}

// holdOrphan records that a reachable orphan has extended attributes from now on, and
// the function that releases them.
func (tb *table) holdOrphan(ino Ino, end func()) (orphan metadata.Inode, ok bool) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	if e == nil || e.orphan == nil || !e.reachable() {
		return metadata.Inode{}, false
	}
	e.xattrs = end
	return *e.orphan, true
}

// isHeld reports whether an orphan has extended attributes, or may have.
func (tb *table) isHeld(ino Ino) bool {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	return e != nil && e.orphan != nil && e.xattrs != nil
}

// xattrsEnd returns the function that releases the extended attributes of an inode that
// is unreachable, or has kept its name. It ignores the end of the context.
func (as *attributes) xattrsEnd(ctx context.Context, ino Ino) func() {
	ctx = context.WithoutCancel(ctx)
	return func() {
		if err := as.meta.ReleaseXattrs(ctx, ino); err != nil {
			as.log.Warn("could not remove the attributes of a removed inode; they remain until the next start",
				zap.Uint64("ino", uint64(ino)), zap.Error(err))
		}
	}
}
