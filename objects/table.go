package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// tableShards is the number of locks over which the entries are distributed. A power of
// two.
const tableShards = 64

// table holds the state of inodes beyond their records: the references to them, and the
// content of those in use. An inode that is not in use has no entry and costs no
// memory.
type table struct {
	meta    *metadata.Store
	engine  *transport.Engine
	log     *zap.Logger
	atime   devices.Atime
	tiers   tiers
	notices *notices
	hole    []byte // zeros, to read from a hole; never written
	shared  shared
	// warner is warn, made once.
	warner func(msg string, err error)
	shards [tableShards]tableShard
}

type tableShard struct {
	mu sync.Mutex
	// +checklocks:mu
	entries map[Ino]*entry
}

// entry is the state of one inode in use. The shard's mu guards all fields.
type entry struct {
	// lookups counts the kernel's references, and parts the references to views of the
	// inode elsewhere.
	lookups, parts uint64
	// pins counts the handles and operations that use obj, opens the handles among them. Those of a directory, which has
	// no obj, are in opens alone.
	pins, opens int
	obj         *object
	// loading is closed when the goroutine that loads obj is done.
	loading chan struct{}
	// moving is closed when a move to another device has ended. The object can't be opened
	// before.
	moving chan struct{}
	// orphan is the inode after the removal of its last name; nil while it has names.
	// xattrs releases its extended attributes, which the records hold; nil for none.
	orphan *metadata.Inode
	xattrs func()
	// leaving is the inode while an operation removes its last name, so that it can be
	// found between the removal of its record and its life as an orphan.
	leaving *metadata.Inode
	// dropped reports that the kernel may not forget the orphan when it becomes
	// unreachable: it may keep the name that hmcfs has removed on its own.
	dropped bool
	// came ends the wait of callers that need the orphan's memory; nil for none.
	came func()
}

func (e *entry) idle() bool {
	return e.lookups == 0 && e.parts == 0 && e.pins == 0 && e.opens == 0 && e.obj == nil && e.loading == nil && e.moving == nil
}

func (tb *table) shard(ino Ino) *tableShard {
	return &tb.shards[uint64(ino)%tableShards]
}

// +checklocks:s.mu
func (s *tableShard) getLocked(ino Ino) *entry {
	e := s.entries[ino]
	if e == nil {
		e = &entry{}
		s.putLocked(ino, e)
	}
	return e
}

// +checklocks:s.mu
func (s *tableShard) putLocked(ino Ino, e *entry) {
	if s.entries == nil {
		s.entries = map[Ino]*entry{}
	}
	s.entries[ino] = e
}

// +checklocks:s.mu
func (s *tableShard) sweepLocked(ino Ino, e *entry) {
	if e.idle() {
		delete(s.entries, ino)
	}
}

// orphanOf returns the inode if it has lost its last name, or is losing it, but is in
// use.
func (tb *table) orphanOf(ino Ino) (metadata.Inode, bool) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	switch {
	case e == nil:
		return metadata.Inode{}, false
	case e.orphan != nil:
		return *e.orphan, true
	case e.leaving != nil:
		return *e.leaving, true
	}
	return metadata.Inode{}, false
}

// leaves records that an operation is about to remove the last name of an inode that is
// in use or, with nil, that the operation has ended.
func (tb *table) leaves(ino Ino, in *metadata.Inode) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil {
		e.leaving = in
	}
}

// changeOrphan changes the inode of an orphan; ok is false if it is not an orphan.
func (tb *table) changeOrphan(ino Ino, fn func(*metadata.Inode) error) (in metadata.Inode, ok bool, err error) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	if e == nil || e.orphan == nil {
		return metadata.Inode{}, false, nil
	}
	changed := *e.orphan
	if err := fn(&changed); err != nil {
		return metadata.Inode{}, true, err
	}
	e.orphan = &changed
	return changed, true, nil
}

// pinMode is the purpose for which pin pins an object.
type pinMode int

const (
	// pinUse is for an operation.
	pinUse pinMode = iota
	// pinOpen is for a handle: it waits for a move to end, and prevents the next one.
	pinOpen
)

// pin loads the object of a regular file, if necessary, and keeps it in memory until
// unpin.
func (tb *table) pin(ctx context.Context, ino Ino, mode pinMode) (*object, error) {
	sh := tb.shard(ino)
	for {
		sh.mu.Lock()
		e := sh.getLocked(ino)
		wait := e.loading
		if wait == nil && mode == pinOpen {
			wait = e.moving
		}
		switch {
		case wait != nil:
			sh.mu.Unlock()
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			continue
		case e.obj == nil && e.orphan != nil && !e.reachable():
			sh.mu.Unlock()
			return nil, fmt.Errorf("open object %d: %w", ino, metadata.ErrNotExist)
		case e.obj == nil:
			e.loading = make(chan struct{})
			sh.mu.Unlock()
			if err := tb.fill(ctx, ino, e); err != nil {
				return nil, err
			}
			continue
		}
		e.pins++
		if mode == pinOpen {
			e.opens++
		}
		sh.mu.Unlock()
		return e.obj, nil
	}
}

// fill loads the object of an entry whose loading this goroutine has set. An inode that
// became unreachable meanwhile no longer exists: its content may have been freed
// between the reads of its record and of its bytes.
func (tb *table) fill(ctx context.Context, ino Ino, e *entry) error {
	obj, err := tb.load(ctx, ino)
	sh := tb.shard(ino)
	sh.mu.Lock()
	close(e.loading)
	e.loading = nil
	if err == nil {
		e.obj = obj
	}
	left := e.leave()
	sh.sweepLocked(ino, e)
	sh.mu.Unlock()
	tb.end(left)
	if err == nil && left.orphan != nil {
		return fmt.Errorf("open object %d: %w", ino, metadata.ErrNotExist)
	}
	return err
}

// pinLoaded pins an object if its content is in memory, without loading it.
func (tb *table) pinLoaded(ino Ino) *object {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	if e == nil || e.obj == nil {
		return nil
	}
	e.pins++
	return e.obj
}

// peek returns the object of an inode if it is in memory, without pinning it. The
// caller may only use the object's own fields, under the lock of the names, since
// nothing is unpinned there.
func (tb *table) peek(ino Ino) *object {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil {
		return e.obj
	}
	return nil
}

// unpin ends one use. With the last one, the record is written if necessary, and the
// content leaves memory; that of an orphan is freed.
func (tb *table) unpin(ctx context.Context, o *object, mode pinMode) {
	sh := tb.shard(o.ino)
	sh.mu.Lock()
	e := sh.entries[o.ino]
	for failed := false; e.pins == 1 && e.orphan == nil && o.dirty.Load() && !failed; {
		sh.mu.Unlock()
		if err := o.save(ctx); err != nil {
			failed = true
			tb.log.Warn("could not write the record of an object", zap.Uint64("ino", uint64(o.ino)), zap.Error(err))
		}
		sh.mu.Lock()
	}
	if e.pins == 1 && e.orphan != nil && e.lookups > 0 {
		// It can stay for long, and nothing saves it any more.
		sh.mu.Unlock()
		o.settle(ctx)
		sh.mu.Lock()
	}
	e.pins--
	if mode == pinOpen {
		e.opens--
	}
	var idle *object
	if e.pins == 0 && e.orphan == nil && !o.mustStay() {
		idle, e.obj = o, nil
	}
	if e.pins == 0 && e.orphan != nil {
		t, _ := o.place()
		e.expect(t)
	}
	left := e.leave()
	sh.sweepLocked(o.ino, e)
	sh.mu.Unlock()
	if idle != nil {
		tb.retire(idle, false)
	}
	tb.end(left)
}

// retire ends an object that is no longer in use.
func (tb *table) retire(o *object, discard bool) {
	body := o.content()
	err := o.endExport()
	if err != nil {
		tb.log.Warn("could not end an export", zap.Uint64("ino", uint64(o.ino)), zap.Error(err))
	}
	if discard {
		err = body.Discard()
	} else if f := body.Backing(); f != nil {
		err = f.Close()
	}
	if err != nil {
		tb.log.Warn("could not free the memory of an object", zap.Uint64("ino", uint64(o.ino)), zap.Error(err))
	}
}

// loaded returns the objects in memory that meant selects. meant is called with the
// lock of the entry's shard, and may change the entry.
func (tb *table) loaded(meant func(*entry) bool) []*object {
	var found []*object
	for i := range tb.shards {
		sh := &tb.shards[i]
		sh.mu.Lock()
		for _, e := range sh.entries {
			if e.obj != nil && meant(e) {
				found = append(found, e.obj)
			}
		}
		sh.mu.Unlock()
	}
	return found
}

// isOpen reports whether there is a handle of the inode.
func (tb *table) isOpen(ino Ino) bool {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	return e != nil && e.opens > 0
}

// beginMove prevents the object from being opened until end is called. ok is false if
// it is open, or is being moved already.
func (tb *table) beginMove(ino Ino) (end func(), ok bool) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.getLocked(ino)
	if e.opens > 0 || e.moving != nil {
		sh.sweepLocked(ino, e)
		return nil, false
	}
	e.moving = make(chan struct{})
	return func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		close(e.moving)
		e.moving = nil
		sh.sweepLocked(ino, e)
	}, true
}

// release releases everything that the table holds for other processes.
func (tb *table) releaseShared() error {
	var errs []error
	for _, o := range tb.loaded(func(e *entry) bool { return e.pins == 0 }) {
		errs = append(errs, o.releaseShared())
	}
	return errors.Join(errs...)
}

func (tb *table) saveAll(ctx context.Context) error {
	var errs []error
	for _, o := range tb.loaded(func(e *entry) bool { return e.orphan == nil }) {
		errs = append(errs, o.save(ctx))
	}
	return errors.Join(errs...)
}

// isOurs reports whether a file is memory of this mount: a file that it exports, or one
// of a host tier.
func (tb *table) isOurs(id owner.FileID) bool {
	return tb.shared.has(id) || slices.ContainsFunc(tb.tiers, func(t *content.Tier) bool { return t.HasFile(id) })
}

func (tb *table) warn(msg string, err error) { tb.log.Warn(msg, zap.Error(err)) }

// reference implements Store.Reference.
func (tb *table) reference(ino Ino, n uint64) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	sh.getLocked(ino).lookups += n
	sh.mu.Unlock()
}

// referencePart implements Store.ReferencePart.
func (tb *table) referencePart(ino Ino) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.getLocked(ino).parts++
}

// forgetPart implements Store.ForgetPart.
func (tb *table) forgetPart(ino Ino) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil {
		e.parts -= min(1, e.parts)
		sh.sweepLocked(ino, e)
	}
}

// forget implements Store.Forget.
func (tb *table) forget(ino Ino, n uint64) (last bool) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	last = true
	var left leftover
	if e := sh.entries[ino]; e != nil {
		e.lookups -= min(n, e.lookups)
		last = e.lookups == 0
		left = e.leave()
		sh.sweepLocked(ino, e)
	}
	sh.mu.Unlock()
	tb.end(left)
	return last
}
