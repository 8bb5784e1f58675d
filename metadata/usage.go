package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Limits bound the records of one inode, and of one user, the owner of inodes. Zero means
// the default. Root has no per-user limits. Concurrent operations may together exceed a
// user's limit by what they add.
type Limits struct {
	// UserNames bounds the names of a user's inodes, hard links included. An inode that
	// chown gives to the user counts, but is never refused.
	UserNames uint64
	// UserXattrBytes bounds the bytes of the names and values of all extended
	// attributes of a user's inodes.
	UserXattrBytes uint64
	// InodeXattrs bounds the number of an inode's extended attributes. The names
	// of the default number fit into the 64 KiB that listxattr returns.
	InodeXattrs uint64
	// InodeXattrBytes bounds the bytes of the names and values of an inode's
	// extended attributes.
	InodeXattrBytes uint64
}

// The defaults of Limits.
const (
	DefaultUserNames       = 500_000
	DefaultUserXattrBytes  = 64 << 20
	DefaultInodeXattrs     = 256
	DefaultInodeXattrBytes = 256 << 10
)

// EnsureDefaults fills in the fields that were left out.
func (l *Limits) EnsureDefaults() {
	for _, f := range []struct {
		value     *uint64
		byDefault uint64
	}{
		{&l.UserNames, DefaultUserNames},
		{&l.UserXattrBytes, DefaultUserXattrBytes},
		{&l.InodeXattrs, DefaultInodeXattrs},
		{&l.InodeXattrBytes, DefaultInodeXattrBytes},
	} {
		if *f.value == 0 {
			*f.value = f.byDefault
		}
	}
}

// Usage is a user's consumption of the limited resources.
type Usage struct {
	Names      uint64
	XattrBytes uint64
}

// LimitStatus is one limit, and the number of its refusals.
type LimitStatus struct {
	Name    string
	Limit   uint64
	Refused uint64
}

// limit identifies one of Limits.
type limit int

const (
	limitUserNames limit = iota
	limitUserXattrBytes
	limitInodeXattrs
	limitInodeXattrBytes
	limitCount
)

// usage tracks the consumption of users. It is computed from the records at Open, and
// updated by every transaction.
type usage struct {
	limits  Limits
	refused [limitCount]atomic.Uint64

	mu sync.Mutex
	// +checklocks:mu
	users map[uint32]Usage
}

// usageChange is one transaction's change to a user's usage.
type usageChange struct {
	uid          uint32
	names, bytes int64
}

// apply adds the changes of a transaction.
func (u *usage) apply(changes []usageChange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range changes {
		now := u.users[c.uid]
		now.Names = uint64(max(0, int64(now.Names)+c.names))
		now.XattrBytes = uint64(max(0, int64(now.XattrBytes)+c.bytes))
		if now == (Usage{}) {
			delete(u.users, c.uid)
			continue
		}
		u.users[c.uid] = now
	}
}

func (u *usage) of(uid uint32) Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.users[uid]
}

// Usage returns a user's consumption of the limited resources.
func (s *Store) Usage(uid uint32) Usage { return s.usage.of(uid) }

// Limits lists the limits and their refusals. Refusals of a Put that is repeated may be
// counted more than once.
func (s *Store) Limits() []LimitStatus {
	l := s.usage.limits
	all := [limitCount]LimitStatus{
		limitUserNames:       {Name: "user-names", Limit: l.UserNames},
		limitUserXattrBytes:  {Name: "user-xattr-bytes", Limit: l.UserXattrBytes},
		limitInodeXattrs:     {Name: "inode-xattrs", Limit: l.InodeXattrs},
		limitInodeXattrBytes: {Name: "inode-xattr-bytes", Limit: l.InodeXattrBytes},
	}
	for i := range all {
		all[i].Refused = s.usage.refused[i].Load()
	}
	return all[:]
}

// refuse counts a refusal and returns its error.
func (t *txn) refuse(l limit, err error, format string, args ...any) error {
	t.s.usage.refused[l].Add(1)
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
}

// use adds a change to a user's usage to the transaction.
func (t *txn) use(uid uint32, names, bytes int64) {
	for i := range t.used {
		if t.used[i].uid == uid {
			t.used[i].names += names
			t.used[i].bytes += bytes
			return
		}
	}
	t.used = append(t.used, usageChange{uid, names, bytes})
}

// using returns a user's usage including the changes of the transaction.
func (t *txn) using(uid uint32) Usage {
	now := t.s.usage.of(uid)
	for _, c := range t.used {
		if c.uid == uid {
			now.Names = uint64(max(0, int64(now.Names)+c.names))
			now.XattrBytes = uint64(max(0, int64(now.XattrBytes)+c.bytes))
		}
	}
	return now
}

// mayName checks whether a user may have one more name. Errors: ErrQuota.
func (t *txn) mayName(uid uint32) error {
	most := t.s.usage.limits.UserNames
	if uid == 0 || t.using(uid).Names < most {
		return nil
	}
	return t.refuse(limitUserNames, ErrQuota, "user %d has reached the limit of %d names", uid, most)
}

// mayGrow checks whether a user may have more bytes of attributes. Errors: ErrQuota.
func (t *txn) mayGrow(uid uint32, more int64) error {
	most := t.s.usage.limits.UserXattrBytes
	if uid == 0 || more <= 0 || t.using(uid).XattrBytes+uint64(more) <= most {
		return nil
	}
	return t.refuse(limitUserXattrBytes, ErrQuota, "attributes of user %d would take more than %d bytes", uid, most)
}

// growXattrs checks and records that an inode gets add attributes, and more bytes of them;
// both may be negative.
//
// Errors: ErrXattrSpace, ErrQuota.
func (t *txn) growXattrs(rec *record, add int, more int64) error {
	l := &t.s.usage.limits
	if add > 0 && uint64(rec.xattrs) >= l.InodeXattrs {
		return t.refuse(limitInodeXattrs, ErrXattrSpace, "an inode has at most %d attributes", l.InodeXattrs)
	}
	var has uint64
	if more > 0 && rec.xattrs > 0 {
		var err error
		if has, err = t.xattrBytes(rec.Ino); err != nil {
			return err
		}
	}
	if more > 0 && has+uint64(more) > l.InodeXattrBytes {
		return t.refuse(limitInodeXattrBytes, ErrXattrSpace, "an inode's attributes take at most %d bytes", l.InodeXattrBytes)
	}
	if err := t.mayGrow(rec.UID, more); err != nil {
		return err
	}
	t.use(rec.UID, 0, more)
	rec.xattrs += uint32(add)
	return nil
}

// xattrBytes sums the attributes of an inode. Their number is limited, except for inodes
// from before the limit existed.
func (t *txn) xattrBytes(ino Ino) (sum uint64, err error) {
	err = t.kv.Scan(t.key1(kindXattr, uint64(ino)), nil, func(key, value []byte) (bool, error) {
		sum += xattrWeight(key, value)
		return true, nil
	})
	return sum, err
}

// discharge subtracts an inode without names from its owner's usage, and its attributes
// unless they are held.
func (t *txn) discharge(rec *record, held bool) error {
	if err := t.account(rec); err != nil || held || rec.xattrs == 0 {
		return err
	}
	return t.refund(rec)
}

// refund subtracts the attributes of an inode from its owner's usage.
func (t *txn) refund(rec *record) error {
	n, err := t.xattrBytes(rec.Ino)
	t.use(rec.UID, 0, -int64(n))
	return err
}

// xattrWeight returns the number of bytes that an attribute counts for: its name and value.
func xattrWeight(key, value []byte) uint64 {
	return uint64(len(key) - inoKeyLen + max(0, len(value)-1))
}

// charge is an inode's contribution to its owner's usage.
type charge struct {
	uid   uint32
	names uint64
}

// names returns the number of the inode's names.
func (i *record) names() uint64 {
	if i.IsDir() {
		return uint64(min(i.Nlink, 1))
	}
	return uint64(i.Nlink)
}

func (i *record) charge() charge { return charge{i.UID, i.names()} }

// account adds the change of an inode's charge to the usage of its owner and of its
// previous owner.
func (t *txn) account(rec *record) error {
	was, now := rec.charged, rec.charge()
	if was == now {
		return nil
	}
	rec.charged = now
	t.use(was.uid, -int64(was.names), 0)
	t.use(now.uid, int64(now.names), 0)
	if was.uid == now.uid || was.names == 0 || rec.xattrs == 0 {
		return nil
	}
	n, err := t.xattrBytes(rec.Ino)
	t.use(was.uid, 0, -int64(n))
	t.use(now.uid, 0, int64(n))
	return err
}

// count computes the usage from the records.
func (s *Store) count(ctx context.Context) error {
	var all []usageChange
	at := map[uint32]int{}
	add := func(c usageChange) {
		i, ok := at[c.uid]
		if !ok {
			i = len(all)
			at[c.uid] = i
			all = append(all, usageChange{uid: c.uid})
		}
		all[i].names += c.names
		all[i].bytes += c.bytes
	}
	err := s.view(ctx, func(t *txn) error {
		return errors.Join(t.countNames(ctx, add), t.countXattrs(ctx, add))
	})
	if err == nil {
		s.usage.apply(all)
	}
	return err
}

// countNames counts the names of all inodes. Unreadable records are left to Check.
func (t *txn) countNames(ctx context.Context, add func(usageChange)) error {
	return t.kv.Scan([]byte{kindInode}, nil, func(key, value []byte) (bool, error) {
		if rec, err := decodeRecord(keyIno(key), value); err == nil {
			add(usageChange{uid: rec.UID, names: int64(rec.names())})
		}
		return true, ctx.Err()
	})
}

// countXattrs sums the attributes of all inodes.
func (t *txn) countXattrs(ctx context.Context, add func(usageChange)) error {
	var of record
	return t.kv.Scan([]byte{kindXattr}, nil, func(key, value []byte) (bool, error) {
		if ino := keyIno(key); ino != of.Ino {
			var err error
			if of, err = t.inode(ino); err != nil {
				of = record{Inode: Inode{Ino: ino}}
			}
		}
		if of.Nlink > 0 {
			add(usageChange{uid: of.UID, bytes: int64(xattrWeight(key, value))})
		}
		return true, ctx.Err()
	})
}
