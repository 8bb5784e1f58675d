package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

// allXattrs reads every stored attribute of an inode.
func (s *Store) allXattrs(ctx context.Context, ino Ino) (map[string][]byte, error) {
	names, err := s.meta.ListXattr(ctx, ino)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(names))
	for _, name := range names {
		if all[name], err = s.meta.GetXattr(ctx, ino, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ofOrphan runs fn on the attributes that an orphan has in place of records.
// It is called when the records say that there is no such inode, with that
// error, which stands when the inode is no orphan either.
func (s *Store) ofOrphan(ino Ino, missing error, fn func(xattrs map[string][]byte) error) error {
	if !errors.Is(missing, metadata.ErrNotExist) {
		return missing
	}
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	if e == nil || e.orphan == nil {
		return missing
	}
	if e.xattrs == nil {
		e.xattrs = map[string][]byte{}
	}
	return fn(e.xattrs)
}

func (s *Store) getXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	value, err := s.meta.GetXattr(ctx, ino, name)
	if err == nil {
		return value, nil
	}
	err = s.ofOrphan(ino, err, func(xattrs map[string][]byte) error {
		kept, ok := xattrs[name]
		if !ok {
			return fmt.Errorf("attribute %s: %w", name, metadata.ErrNoXattr)
		}
		value = bytes.Clone(kept)
		return nil
	})
	return value, err
}

func (s *Store) setXattr(ctx context.Context, ino Ino, name string, value []byte, flags metadata.XattrFlags) error {
	err := s.meta.SetXattr(ctx, ino, name, value, flags)
	if err == nil {
		return nil
	}
	return s.ofOrphan(ino, err, func(xattrs map[string][]byte) error {
		_, have := xattrs[name]
		switch {
		case have && flags&metadata.XattrCreate != 0:
			return fmt.Errorf("attribute %s: %w", name, metadata.ErrExist)
		case !have && flags&metadata.XattrReplace != 0:
			return fmt.Errorf("attribute %s: %w", name, metadata.ErrNoXattr)
		}
		xattrs[name] = bytes.Clone(value)
		return nil
	})
}

func (s *Store) listXattr(ctx context.Context, ino Ino) ([]string, error) {
	names, err := s.meta.ListXattr(ctx, ino)
	if err == nil {
		return names, nil
	}
	err = s.ofOrphan(ino, err, func(xattrs map[string][]byte) error {
		names = slices.Sorted(maps.Keys(xattrs))
		return nil
	})
	return names, err
}

func (s *Store) removeXattr(ctx context.Context, ino Ino, name string) error {
	err := s.meta.RemoveXattr(ctx, ino, name)
	if err == nil {
		return nil
	}
	return s.ofOrphan(ino, err, func(xattrs map[string][]byte) error {
		if _, have := xattrs[name]; !have {
			return fmt.Errorf("attribute %s: %w", name, metadata.ErrNoXattr)
		}
		delete(xattrs, name)
		return nil
	})
}
