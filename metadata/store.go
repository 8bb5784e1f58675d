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

// Store is the namespace and the object records of one mount. All methods are safe for
// concurrent use, but none may be called after Close. If the context ends, a method fails
// without having changed anything, except where its comment says that it works in steps.
type Store struct {
	kv    KV
	log   *zap.Logger
	now   func() time.Time
	super superblock // immutable
	// hash returns a name's hash; tests make it collide.
	hash func(name string) uint64
	// purgeBatch is the constant, except in tests.
	purgeBatch int
	alloc      allocator
	locks      lockTable
	cache      *cache
	held       heldXattrs
	usage      usage
	// changed is called with what transactions have written; nil disables it.
	changed atomic.Pointer[func(ino Ino, names bool)]
	// witness is notified of inode numbers before they are assigned; it may be nil.
	witness atomic.Pointer[Witness]
}

// Open takes ownership of the KV, which Close closes. In an empty KV it creates a
// superblock, a root directory and PublishIno; a store of an older format is upgraded to
// the current one. If Open fails, the KV stays open and remains the caller's.
//
// Errors: ErrNewer (a *VersionError) if a newer hmcfs wrote the store, ErrCorrupt if it is
// invalid.
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
		return nil, fmt.Errorf("count usage per user: %w", err)
	}
	return s, nil
}

// begin reads the superblock, or creates the first records of a new store.
func (s *Store) begin(ctx context.Context) error {
	fresh, err := s.drawSuperblock()
	if err != nil {
		return err
	}
	err = s.kv.Update(ctx, func(kv KVTxn) error { return s.readFirst(kv, fresh) })
	s.hash = s.super.hashKey.sum
	return err
}

// readFirst reads the superblock and the inode counter, or creates them.
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

// upgrade converts a store of format 1 to the current format.
func (s *Store) upgrade(kv KVTxn) error {
	s.super.format = formatVersion
	t := s.startTxn(kv)
	publish := t.publishDir()
	return errors.Join(t.putInode(&publish), kv.Set([]byte{kindSuper}, s.super.encode()))
}

// create writes the records of an empty store.
func (s *Store) create(kv KVTxn) error {
	t := s.startTxn(kv)
	root := s.rootDir(t)
	publish := t.publishDir()
	s.alloc.start(FirstIno)
	return errors.Join(
		t.putInode(&root), t.putInode(&publish),
		kv.Set([]byte{kindAlloc}, encodeNumber(nil, uint64(FirstIno))),
		kv.Set([]byte{kindSuper}, s.super.encode()),
	)
}

// rootDir returns the record of an empty root directory.
func (s *Store) rootDir(t *txn) record {
	return record{Inode: Inode{
		Ino: RootIno, Gen: s.super.gen, Mode: TypeDir | 0o755, Nlink: 2,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
	}}
}

// drawSuperblock generates the superblock for a new store.
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

// corruptIfMissing turns ErrNoKey, for a record that must exist, into ErrCorrupt.
func corruptIfMissing(err error, what string) error {
	if errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w: %s: missing", ErrCorrupt, what)
	}
	return err
}

// Close closes the KV. All other methods must have returned before.
func (s *Store) Close() error { return s.kv.Close() }

// Room returns ErrNoSpace if the space left for records is reserved for removals, for
// changes of data, and for Close. Operations that add or change names, attributes and keys
// check it; Update doesn't.
func (s *Store) Room(ctx context.Context) error {
	if r, ok := s.kv.(Roomer); ok {
		return r.Room(ctx)
	}
	return nil
}

// Cut reports whether records may be missing; see Cutter. Bytes without a record must not
// be removed then.
func (s *Store) Cut() bool {
	c, ok := s.kv.(Cutter)
	return ok && c.Cut()
}

// Settle ends the state that Cut reports; see Cutter.
func (s *Store) Settle() {
	if c, ok := s.kv.(Cutter); ok {
		c.Settle()
	}
}

// Generation returns the number that distinguishes this store's inodes from those of
// another store. It is generated when the store is created.
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

// Lookup returns the inode with a name in a directory. "." and ".." are not stored, so they
// are invalid names here.
//
// Errors: ErrNotExist, also if the directory itself was removed; ErrNotDir; ErrNameTooLong;
// ErrInvalidName.
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
		// Either the name has been removed since, or the records are inconsistent: a lookup
		// in one snapshot decides.
		return s.lookup(ctx, parent, name)
	}
	return in, err
}

// findName returns the inode number of a name.
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

// Update reads, changes and writes one inode in a transaction, and returns it as written.
// fn may set the permission bits of the mode, the owner, the times, the size of anything
// but a directory, the epoch, the allocated bytes and the path. It may run more than once,
// each time on the stored state, and must not use the store. If fn returns an error, Update
// returns it unchanged and writes nothing.
//
// Errors: ErrNotExist; ErrInvalid if fn changed any other field.
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

// apply runs fn on the inode and rejects changes that are reserved for other operations.
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
		return fmt.Errorf("%w: update of a field that callers may not set", ErrInvalid)
	}
	return nil
}

// Now returns the current time of the store's clock, which also stamps its records.
func (s *Store) Now() Timespec { return TimespecOf(s.now()) }
