package metadata

import "fmt"

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
			now = now.plus(c)
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
	err = t.kv.Scan(t.key(kindXattr, uint64(ino)), nil, func(key, value []byte) (bool, error) {
		sum += xattrWeight(key, value)
		return true, nil
	})
	return sum, err
}

// discharge subtracts an inode without names from its owner's usage, and its attributes
// unless they are held.
func (t *txn) discharge(rec *record, held bool) {
	t.account(rec)
	if !held && rec.xattrs > 0 {
		t.refund(rec)
	}
}

// refund subtracts the attributes of an inode from its owner's usage.
func (t *txn) refund(rec *record) {
	n, err := t.xattrBytes(rec.Ino)
	t.fail(err)
	t.use(rec.UID, 0, -int64(n))
}

// xattrWeight returns the number of bytes that an attribute counts for: its name and value.
func xattrWeight(key, value []byte) uint64 {
	return uint64(len(key) - inoKeyLen + max(0, len(value)-1))
}

// account adds the change of an inode's charge to the usage of its owner and of its
// previous owner.
func (t *txn) account(rec *record) {
	was, now := rec.charged, rec.charge()
	if was == now {
		return
	}
	rec.charged = now
	t.use(was.uid, -int64(was.names), 0)
	t.use(now.uid, int64(now.names), 0)
	if was.uid == now.uid || was.names == 0 || rec.xattrs == 0 {
		return
	}
	n, err := t.xattrBytes(rec.Ino)
	t.fail(err)
	t.use(was.uid, 0, -int64(n))
	t.use(now.uid, 0, int64(n))
}
