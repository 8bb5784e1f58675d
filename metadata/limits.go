package metadata

import (
	"cmp"
	"sync"
	"sync/atomic"
)

// The limits on names and links.
const (
	// MaxName is the maximum length, in bytes, of the name of an entry and of an extended
	// attribute.
	MaxName = 255
	// MaxKey is the maximum length, in bytes, of a key.
	MaxKey = 255
	// MaxXattr is the maximum size, in bytes, of the value of an attribute.
	MaxXattr = 64 << 10
	// MaxLinks bounds the links of an inode.
	MaxLinks = 1 << 20
	// MaxTarget is the maximum length, in bytes, of the target of a symlink.
	MaxTarget = 4095
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
	l.UserNames = cmp.Or(l.UserNames, DefaultUserNames)
	l.UserXattrBytes = cmp.Or(l.UserXattrBytes, DefaultUserXattrBytes)
	l.InodeXattrs = cmp.Or(l.InodeXattrs, DefaultInodeXattrs)
	l.InodeXattrBytes = cmp.Or(l.InodeXattrBytes, DefaultInodeXattrBytes)
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

// plus returns the usage after a change.
func (u Usage) plus(c usageChange) Usage {
	return Usage{
		Names:      uint64(max(0, int64(u.Names)+c.names)),
		XattrBytes: uint64(max(0, int64(u.XattrBytes)+c.bytes)),
	}
}

// apply adds the changes of a transaction.
func (u *usage) apply(changes []usageChange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range changes {
		now := u.users[c.uid].plus(c)
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
