package region

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Keys holds the rights of one peer in one session. Another peer, or the same
// peer's next session, has other Keys: no key outlives its session. All methods
// may be called from any goroutine.
type Keys struct {
	// grants never changes once published: it is replaced.
	grants atomic.Pointer[map[wire.Key]*grant]

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// sweep is the number of grants at which those of closed buffers are removed.
	// +checklocks:mu
	sweep int
}

// minSweep is the number of grants below which none are removed.
const minSweep = 64

// grant holds the buffer and rights of one key.
type grant struct {
	buffer *Buffer
	rights wire.Rights
	gate   gate.Gate
}

// NewKeys returns the empty set of keys of a new session.
func NewKeys() *Keys {
	k := &Keys{}
	k.grants.Store(&map[wire.Key]*grant{})
	return k
}

// Grant makes a new key for the buffer and returns the descriptor that the peer
// needs.
//
// Errors: ErrRights for no rights; devices.ErrClosed for a buffer or a
// session that has ended.
func (k *Keys) Grant(b *Buffer, rights wire.Rights) (wire.Descriptor, error) {
	if rights == 0 || rights > wire.Readable|wire.Writable {
		return wire.Descriptor{}, fmt.Errorf("grant a key with rights %s: %w", rights, ErrRights)
	}
	if err := b.Hold(); err != nil {
		return wire.Descriptor{}, err
	}
	defer b.Drop()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return wire.Descriptor{}, fmt.Errorf("grant a key in a session that has ended: %w", devices.ErrClosed)
	}
	old := *k.grants.Load()
	key := wire.Key(wire.Random())
	for old[key] != nil {
		key = wire.Key(wire.Random())
	}
	next := maps.Clone(old)
	if len(next) >= max(k.sweep, minSweep) {
		maps.DeleteFunc(next, func(_ wire.Key, g *grant) bool { return g.buffer.dropped.Load() })
		k.sweep = 2 * len(next)
	}
	next[key] = &grant{buffer: b, rights: rights}
	k.grants.Store(&next)
	return wire.Descriptor{Key: key, Size: uint64(b.size), Rights: rights}, nil
}

// Revoke revokes a key: no operation starts with it any more, and when it returns
// nil those in progress have ended.
//
// Errors: ErrKey for a key that names nothing; the context's, when it ends before
// the operations do. The key is revoked in that case too.
func (k *Keys) Revoke(ctx context.Context, key wire.Key) error {
	k.mu.Lock()
	old := *k.grants.Load()
	g := old[key]
	if g != nil {
		next := maps.Clone(old)
		delete(next, key)
		k.grants.Store(&next)
	}
	k.mu.Unlock()
	if g == nil {
		return fmt.Errorf("revoke a key: %w", ErrKey)
	}
	g.gate.Shut()
	if err := g.gate.Wait(ctx); err != nil {
		return fmt.Errorf("wait for operations that use a revoked key: %w", err)
	}
	return nil
}

// Close revokes every key. It does not wait; operations in progress are ended by
// the session.
func (k *Keys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.grants.Store(&map[wire.Key]*grant{})
}

// Use is the right to access one range, until Release.
type Use struct {
	// Buffer is the memory; the range was checked.
	Buffer *Buffer
	grant  *grant
}

// Release ends the use.
func (u Use) Release() {
	u.Buffer.Drop()
	u.grant.gate.Leave()
}

// Use checks that key allows need on n bytes from off, and holds the memory
// until Release. It takes no lock and allocates nothing.
func (k *Keys) Use(key wire.Key, need wire.Rights, off uint64, n devices.Size) (Use, wire.Status) {
	g := (*k.grants.Load())[key]
	if g == nil || !g.gate.Enter() {
		return Use{}, wire.StatusKey
	}
	u := Use{Buffer: g.buffer, grant: g}
	switch {
	case !g.buffer.gate.Enter():
		g.gate.Leave()
		return Use{}, wire.StatusKey
	case !g.rights.Allows(need):
		u.Release()
		return Use{}, wire.StatusRights
	case !(devices.Range{Off: devices.Offset(off), Len: n}).Within(g.buffer.size):
		u.Release()
		return Use{}, wire.StatusRange
	}
	return u, wire.StatusOK
}

// StatusError returns the error for a peer's status; nil for StatusOK.
func StatusError(s wire.Status) error {
	switch s {
	case wire.StatusOK:
		return nil
	case wire.StatusKey:
		return ErrKey
	case wire.StatusRights:
		return ErrRights
	case wire.StatusRange:
		return devices.ErrRange
	default:
		return fmt.Errorf("%s: %w", s, devices.ErrDevice)
	}
}
