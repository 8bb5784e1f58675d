package objects

import (
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// leftover holds the rest of an inode that has become unreachable.
type leftover struct {
	orphan *metadata.Inode // nil for nothing
	obj    *object         // nil if it is not loaded
	came   func()
	xattrs func()
}

// reachable reports whether the inode of the entry is in use, or can still come into
// use.
func (e *entry) reachable() bool {
	return e.orphan == nil || e.pins > 0 || e.opens > 0 || e.lookups > 0 && !e.dropped
}

// leave takes the content out of the entry of an orphan that is unreachable. The caller
// has the lock of the shard, and passes the result to end without it.
func (e *entry) leave() leftover {
	if e.reachable() || e.loading != nil {
		return leftover{}
	}
	left := leftover{orphan: e.orphan, obj: e.obj, came: e.came, xattrs: e.xattrs}
	if e.obj != nil {
		last := *e.orphan
		if err := e.obj.overlay(&last); err == nil {
			e.orphan = &last
		}
	}
	e.obj, e.came, e.xattrs = nil, nil, nil
	return left
}

// expect makes callers that need memory of a tier wait a while for that of an orphan.
// The caller has the lock of the shard.
func (e *entry) expect(t *content.Tier) {
	if e.orphan == nil || e.lookups == 0 || e.dropped {
		return
	}
	if e.came != nil {
		e.came()
	}
	e.came = t.ExpectMemory()
}

// end frees the remains of an orphan.
func (tb *table) end(left leftover) {
	switch {
	case left.orphan == nil:
		return
	case left.obj != nil:
		tb.retire(left.obj, true)
	default:
		tb.forgetHost(*left.orphan)
	}
	if left.came != nil {
		left.came()
	}
	if left.xattrs != nil {
		left.xattrs()
	}
}

// forgetHost removes the host-tier file of an object that is not loaded.
func (tb *table) forgetHost(in metadata.Inode) {
	t, err := tb.tiers.named(in.Device)
	if err != nil || t.Files == nil || !in.IsRegular() {
		return
	}
	if err := content.RemoveHostFile(t, tb.engine, uint64(in.Ino)); err != nil {
		tb.log.Warn("could not free the host memory of a removed object", zap.Error(err))
	}
}

// orphaned records that an inode has lost its last name, and with it its records,
// except for extended attributes that are held. Its content is freed at once if it is
// unreachable; xattrs and dropped are those of entry.
func (tb *table) orphaned(in metadata.Inode, xattrs func(), dropped bool) {
	sh := tb.shard(in.Ino)
	sh.mu.Lock()
	e := sh.getLocked(in.Ino)
	e.orphan, e.xattrs, e.dropped = &in, xattrs, dropped
	if t, err := tb.tiers.named(in.Device); err == nil && in.IsRegular() {
		e.expect(t)
	}
	left := e.leave()
	sh.sweepLocked(in.Ino, e)
	sh.mu.Unlock()
	tb.end(left)
}

// drop implements Store.Drop.
func (tb *table) drop(ino Ino) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	var left leftover
	if e := sh.entries[ino]; e != nil && e.orphan != nil {
		e.dropped = true
		left = e.leave()
	}
	sh.mu.Unlock()
	tb.end(left)
}

// endOrphans frees the orphans to which only the kernel refers.
func (tb *table) endOrphans() {
	for i := range tb.shards {
		sh := &tb.shards[i]
		var left []leftover
		sh.mu.Lock()
		for ino, e := range sh.entries {
			if e.orphan != nil {
				e.dropped = true
				left = append(left, e.leave())
				sh.sweepLocked(ino, e)
			}
		}
		sh.mu.Unlock()
		for _, l := range left {
			tb.end(l)
		}
	}
}
