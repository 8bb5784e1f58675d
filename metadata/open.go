package metadata

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Open takes ownership of the KV, which Close closes. In an empty KV it creates a
// superblock, a root directory and PublishIno; a store of an older format is upgraded to
// the current one. If Open fails, the KV stays open and remains the caller's.
//
// Errors: ErrNewer (a *VersionError) if a newer hmcfs wrote the store, ErrCorrupt if it is
// invalid.
func Open(ctx context.Context, kv KV, opts Options) (*Store, error) {
	opts.EnsureDefaults()
	s := &Store{
		kv: kv, log: opts.Logger.Named("metadata"), now: opts.Now, purgeBatch: purgeBatch, cache: newCache(), nameless: nameless{keepNameless: opts.KeepNameless},
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
	fresh := drawSuperblock(s.now())
	err := s.kv.Update(ctx, func(kv KVTxn) error { return s.readFirst(kv, fresh) })
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
	return s.startTxn(kv).run(func(t *txn) error {
		publish := t.publishDir()
		t.putInode(&publish)
		t.set([]byte{kindSuper}, s.super.encode())
		return nil
	})
}

// create writes the records of an empty store.
func (s *Store) create(kv KVTxn) error {
	s.alloc.start(FirstIno)
	return s.startTxn(kv).run(func(t *txn) error {
		root, publish := t.rootDir(s.super.gen), t.publishDir()
		t.putInode(&root)
		t.putInode(&publish)
		t.set([]byte{kindAlloc}, encodeNumber(nil, uint64(FirstIno)))
		t.set([]byte{kindSuper}, s.super.encode())
		return nil
	})
}

// rootDir returns the record of an empty root directory.
func (t *txn) rootDir(gen Generation) record {
	return record{Inode: Inode{
		Ino: RootIno, Gen: gen, Mode: TypeDir | 0o755, Nlink: 2,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
	}}
}

// drawSuperblock generates the superblock for a new store.
func drawSuperblock(now time.Time) superblock {
	sb := superblock{format: formatVersion, created: TimespecOf(now)}
	var gen [8]byte
	_, _ = rand.Read(gen[:]) // never fails
	_, _ = rand.Read(sb.hashKey[:])
	sb.gen = Generation(binary.BigEndian.Uint64(gen[:]))
	return sb
}

// count computes the usage of all users from the records.
func (s *Store) count(ctx context.Context) error {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	users := s.usage.users
	return s.view(ctx, func(t *txn) error {
		return errors.Join(t.countNames(ctx, users), t.countXattrs(ctx, users))
	})
}

// countNames counts the names of all inodes. Unreadable records are left to Check.
func (t *txn) countNames(ctx context.Context, users map[uint32]Usage) error {
	return t.kv.Scan([]byte{kindInode}, nil, func(key, value []byte) (bool, error) {
		if rec, err := decodeRecord(keyIno(key), value); err == nil {
			users[rec.UID] = users[rec.UID].plus(usageChange{names: int64(rec.names())})
		}
		return true, ctx.Err()
	})
}

// countXattrs sums the attributes of all inodes.
func (t *txn) countXattrs(ctx context.Context, users map[uint32]Usage) error {
	var of record
	return t.kv.Scan([]byte{kindXattr}, nil, func(key, value []byte) (bool, error) {
		if ino := keyIno(key); ino != of.Ino {
			var err error
			if of, err = t.bearer(ino); err != nil {
				of = record{Inode: Inode{Ino: ino}}
			}
		}
		if of.Nlink > 0 || t.isHeld(of.Ino) {
			users[of.UID] = users[of.UID].plus(usageChange{bytes: int64(xattrWeight(key, value))})
		}
		return true, ctx.Err()
	})
}
