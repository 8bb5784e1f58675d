package objects

import (
	"context"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Store is the object store. Its methods may be called from any goroutine.
type Store struct {
	meta    *metadata.Store
	engine  *transport.Engine
	log     *zap.Logger
	tiers   tiers
	notices *notices
	table   *table
	attrs   *attributes
	access  *access
	index   *keyIndex
	claims  *claims
	events  *events
	names   *names
	changes *changes
	turns   turns
	keyed   *keyed
	binders sync.Pool // of *binder that have ended
	// bindings uses memory of others, and exports makes memory available to others.
	bindings     *bindings
	exports      *exports
	moves        *moves
	publications *publications
	headers      *headers
	// work counts the background work, for which Close waits.
	work *sync.WaitGroup
	stop context.CancelFunc
	// lasting reports whether a later process continues with what this one has.
	lasting  bool
	receipts *receipts
	// owners reports the exit of processes that own or use memory.
	owners *owner.Watcher
	// holders has the holders that have not been closed, as keys.
	holders sync.Map
	// orphans are pinned from Open to ReleaseUnclaimed, which removes the names of received. unclaimed is held while they are
	// released.
	unclaimed sync.Mutex
	orphans   []Ino
	received  []Ino
	// keeper is nil once nothing is to be released any more.
	// +checklocks:unclaimed
	keeper devices.DescriptorStore
	// recovery has the findings of Open; immutable afterwards.
	recovery Recovery
	// freedAbsent is the memory, in bytes, of devices that the records do not know.
	freedAbsent atomic.Uint64
}

// MayReach checks whether a user could have reached an inode by its path, which needs
// search permission on all directories above it. It knows one path of the inode; a
// caller that has found the inode by another of its names passes a descriptor instead.
//
// Errors: ErrForbidden; metadata.ErrNotExist; ErrBusy.
func (s *Store) MayReach(ctx context.Context, who Caller, ino Ino) error {
	if who.UID == 0 {
		return nil
	}
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	return s.access.maySearchAbove(ctx, who, a.Inode)
}

// Volatile reports whether names in a directory appear and disappear without requests
// of the kernel, which must therefore not cache them: in publish/, and in the
// directories of keyed objects.
func (s *Store) Volatile(dir Ino) bool {
	return s.access.volatile(context.Background(), dir)
}

// OnNotice adds a function to be called after every change of attributes, content or
// names that was made through the store, by any caller; writes of the kernel to a host
// file by passthrough are reported when the file is closed. fn may also be called for
// things that have not changed. It must not wait, and must not call the store. cancel
// removes the function; after it returns, fn is not running and won't be called again.
func (s *Store) OnNotice(fn func(Notice)) (cancel func()) { return s.notices.onNotice(fn) }

// Drop reports that an inode may have lost its last name without a request of the
// kernel, which may therefore keep the name: content without names is then freed with
// the last handle.
func (s *Store) Drop(ino Ino) { s.table.drop(ino) }

// Reference counts n references of the kernel to an inode. While there are any, an
// inode without names stays usable: an O_PATH descriptor or a working directory is not
// a handle, but its inode can still be opened.
func (s *Store) Reference(ino Ino, n uint64) { s.table.reference(ino, n) }

// ReferencePart counts a reference to a view of the inode elsewhere. While there is
// any, the attributes of an inode without names remain available.
func (s *Store) ReferencePart(ino Ino) { s.table.referencePart(ino) }

// ForgetPart drops a reference counted by ReferencePart.
func (s *Store) ForgetPart(ino Ino) { s.table.forgetPart(ino) }

// SetAuthority makes a the authority on keys, and reports all existing keys to it. With
// nil, there is none: every key that is free on this node may be used.
//
// Errors: those of reading the records; a is the authority all the same.
func (s *Store) SetAuthority(ctx context.Context, a KeyAuthority) error {
	return s.claims.setAuthority(ctx, a)
}

// Listen makes a queue of the events from now on. Close ends it. The queue is bounded:
// if it is not read, the oldest events are dropped and replaced by one EventDropped.
func (s *Store) Listen() *Events { return s.events.listen() }

// OnChange sets a function to be called for changes that the kernel has not requested:
// with lost false when an object was bound, its content replaced by a Draft, or its expiry
// changed; with lost true when an object was lost with its owner, or a registered file was
// written, so that cached bytes are stale. For a binding, the call may be made within Bind.
// fn must not call the store; readers don't wait for it. nil removes the function; no call
// is under way when OnChange returns.
func (s *Store) OnChange(fn func(ino Ino, lost bool)) { s.changes.onChange(fn) }

// TakeTurn waits until no earlier turn conflicts: one that replaces any of these files,
// or reads one of writes. Conflicting turns have the order of the calls. A turn covers
// all its files at once, which excludes deadlocks. done ends the turn; call it once.
//
// Errors: the context's.
func (s *Store) TakeTurn(ctx context.Context, reads, writes []Ino) (done func(), err error) {
	return s.turns.takeTurn(ctx, reads, writes)
}
