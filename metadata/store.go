package metadata

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Store is the namespace and the object records of one mount. All methods are
// safe for concurrent use, but none may be called after Close. A context that
// ends makes a method fail before it changed anything, never in between,
// except where a method says that it works in steps.
type Store struct {
	kv    KV
	log   *zap.Logger
	now   func() time.Time
	super superblock // immutable
	// hash places a name in its directory; tests make it collide.
	hash func(name string) uint64
	// purgeBatch is the constant, but in tests.
	purgeBatch int
	alloc      allocator
	locks      lockTable
	cache      *cache
	held       heldXattrs
	usage      usage
	// changed is told what transactions have written; nil is nobody.
	changed atomic.Pointer[func(ino Ino, names bool)]
	// witness is told of inode numbers before they are given; it may be nil.
	witness atomic.Pointer[Witness]
}

// Open takes over the KV, which Close closes. An empty KV gets a superblock, a
// root directory and PublishIno, and one of an older format becomes one of the
// present format. When Open fails the KV stays open, and stays the
// caller's.
//
// Errors: ErrNewer (a *VersionError) when a newer hmcfs wrote the store,
// ErrCorrupt when it cannot be understood.
func Open(ctx context.Context, kv KV, opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.EnsureDefaults()
	cache, err := newCache()
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{
		kv: kv, log: opts.Logger.Named("metadata"), now: opts.Now, purgeBatch: purgeBatch, cache: cache,
		usage: usage{limits: opts.Limits, users: map[uint32]Usage{}},
	}
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := s.purgeAll(ctx); err != nil {
		return nil, fmt.Errorf("finish removals: %w", err)
	}
	if err := s.count(ctx); err != nil {
		return nil, fmt.Errorf("count what users have: %w", err)
	}
	return s, nil
}

// begin reads the superblock, or writes the first records of a new store.
func (s *Store) begin(ctx context.Context) error {
	fresh, err := s.drawSuperblock()
	if err != nil {
		return err
	}
	err = s.kv.Update(ctx, func(kv KVTxn) error { return s.readFirst(kv, fresh) })
	s.hash = s.super.hashKey.sum
	return err
}

// readFirst reads the superblock and the inode counter, or makes them.
func (s *Store) readFirst(kv KVTxn, fresh superblock) error {
	data, err := kv.Get([]byte{kindSuper})
	if errors.Is(err, ErrNoKey) {
		s.super = fresh
		return s.create(kv)
	}
	if err != nil {
		return err
	}
	if s.super, err = decodeSuperblock(data); err != nil {
		return err
	}
	data, err = kv.Get([]byte{kindAlloc})
	if err != nil {
		return corruptIfMissing(err, "inode counter")
	}
	next, err := decodeNumber("inode counter", data)
	s.alloc.start(Ino(next))
	if err != nil || s.super.format == formatVersion {
		return err
	}
	return s.upgrade(kv)
}

// upgrade brings a store of format 1 to the present one.
func (s *Store) upgrade(kv KVTxn) error {
	s.super.format = formatVersion
	t := s.begunTxn(kv)
	publish := t.publishDir()
	return errors.Join(t.putInode(&publish), kv.Set([]byte{kindSuper}, s.super.encode()))
}

// create writes the records of an empty store.
func (s *Store) create(kv KVTxn) error {
	t := s.begunTxn(kv)
	root := s.rootDir(t)
	publish := t.publishDir()
	s.alloc.start(FirstIno)
	return errors.Join(
		t.putInode(&root), t.putInode(&publish),
		kv.Set([]byte{kindAlloc}, encodeNumber(nil, uint64(FirstIno))),
		kv.Set([]byte{kindSuper}, s.super.encode()),
	)
}

// rootDir makes the record of an empty root directory.
func (s *Store) rootDir(t *txn) record {
	return record{Inode: Inode{
		Ino: RootIno, Gen: s.super.gen, Mode: TypeDir | 0o755, Nlink: 2,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
	}}
}

// drawSuperblock makes the superblock that a new store would get.
func (s *Store) drawSuperblock() (superblock, error) {
	sb := superblock{format: formatVersion, created: TimespecOf(s.now())}
	var gen [8]byte
	if _, err := rand.Read(gen[:]); err != nil {
		return sb, err
	}
	if _, err := rand.Read(sb.hashKey[:]); err != nil {
		return sb, err
	}
	sb.gen = Generation(binary.BigEndian.Uint64(gen[:]))
	return sb, nil
}

// corruptIfMissing turns the absence of a record that must be there into
// ErrCorrupt.
func corruptIfMissing(err error, what string) error {
	if errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w: %s: missing", ErrCorrupt, what)
	}
	return err
}

// Close closes the KV. All other methods have returned when it is called.
func (s *Store) Close() error { return s.kv.Close() }

// Room answers ErrNoSpace when the space that is left for records is kept for
// removals, for what becomes of data, and for the end. Operations that add or
// change names, attributes and keys ask it themselves; Update doesn't.
func (s *Store) Room(ctx context.Context) error {
	if r, ok := s.kv.(Roomer); ok {
		return r.Room(ctx)
	}
	return nil
}

// Cut reports that the records are not all that there ever were; see Cutter. Bytes
// without a record are not removed then.
func (s *Store) Cut() bool {
	c, ok := s.kv.(Cutter)
	return ok && c.Cut()
}

// Settle says that what Cut is about is kept elsewhere; see Cutter.
func (s *Store) Settle() {
	if c, ok := s.kv.(Cutter); ok {
		c.Settle()
	}
}

// Generation returns what tells this store's inodes from those of another
// store. It is drawn once, when the store is created.
func (s *Store) Generation() Generation { return s.super.gen }

// Get returns an inode.
//
// Errors: ErrNotExist.
func (s *Store) Get(ctx context.Context, ino Ino) (Inode, error) {
	in, ok, drops := s.cache.inode(ino)
	if ok {
		return in, ctx.Err()
	}
	var rec record
	err := s.view(ctx, func(t *txn) (err error) {
		rec, err = t.inode(ino)
		return err
	})
	if err == nil {
		s.cache.putInode(rec.Inode, drops)
	}
	return rec.Inode, err
}

// Lookup returns the inode that has a name in a directory. "." and ".." are
// not stored, so they are invalid names here.
//
// Errors: ErrNotExist, also when the directory itself is gone; ErrNotDir;
// ErrNameTooLong; ErrInvalidName.
func (s *Store) Lookup(ctx context.Context, parent Ino, name string) (Inode, error) {
	if err := validName(name); err != nil {
		return Inode{}, err
	}
	ino, err := s.findName(ctx, parent, name)
	if err != nil {
		return Inode{}, err
	}
	in, err := s.Get(ctx, ino)
	if errors.Is(err, ErrNotExist) {
		// The name has gone since, or the records contradict each other: one
		// snapshot tells.
		return s.lookup(ctx, parent, name)
	}
	return in, err
}

// findName returns the number behind a name.
func (s *Store) findName(ctx context.Context, parent Ino, name string) (Ino, error) {
	place := nameKey{parent, s.firstCookie(name)}
	ino, ok, drops := s.cache.name(place, name)
	if ok {
		return ino, ctx.Err()
	}
	var sl slot
	err := s.view(ctx, func(t *txn) (err error) {
		sl, err = t.findDirent(parent, name)
		if err != nil || sl.found {
			return err
		}
		if _, err = t.dir(parent); err != nil {
			return err
		}
		return ErrNotExist
	})
	if err == nil && sl.cookie == place.cookie {
		s.cache.putName(place, cachedName{name, sl.ino}, drops)
	}
	return sl.ino, err
}

// lookup is Lookup in one snapshot.
func (s *Store) lookup(ctx context.Context, parent Ino, name string) (Inode, error) {
	var rec record
	err := s.view(ctx, func(t *txn) error {
		sl, err := t.findDirent(parent, name)
		if err != nil {
			return err
		}
		if !sl.found {
			return ErrNotExist
		}
		rec, err = t.target(sl.dirent)
		return err
	})
	return rec.Inode, err
}

// Update reads, changes and writes one inode in a transaction, and returns it
// as it was written. fn may set the permission bits of the mode, the owner,
// the times, the size of what is not a directory, the epoch, the allocated
// bytes and the path; it may run more than once, each time on what is stored,
// and does not use the store. An error of fn is returned as it is, and nothing
// is written.
//
// Errors: ErrNotExist; ErrInvalid when fn changed anything else.
func (s *Store) Update(ctx context.Context, ino Ino, fn func(*Inode) error) (Inode, error) {
	defer s.locks.lock(ino)()
	var rec record
	err := s.update(ctx, func(t *txn) (err error) {
		if rec, err = t.inode(ino); err != nil {
			return err
		}
		if err = rec.apply(fn); err != nil {
			return err
		}
		return t.putInode(&rec)
	})
	return rec.Inode, err
}

// apply runs fn on the inode and refuses changes that belong to other
// operations.
func (i *record) apply(fn func(*Inode) error) error {
	if fn == nil {
		return nil
	}
	was := i.Inode
	if err := fn(&i.Inode); err != nil {
		return err
	}
	fixed := was
	fixed.Mode = was.Mode.Type() | i.Mode.Perm()
	fixed.UID, fixed.GID = i.UID, i.GID
	fixed.Atime, fixed.Mtime = i.Atime, i.Mtime
	fixed.Ctime, fixed.Btime = i.Ctime, i.Btime
	fixed.Epoch, fixed.Allocated, fixed.Path = i.Epoch, i.Allocated, i.Path
	if !was.IsDir() {
		fixed.Size = i.Size
	}
	if fixed != i.Inode {
		return fmt.Errorf("%w: update of a field that is not the caller's", ErrInvalid)
	}
	return nil
}

// Now is the present by the store's clock, which also stamps its records.
func (s *Store) Now() Timespec { return TimespecOf(s.now()) }
