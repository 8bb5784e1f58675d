package admin

import (
	"context"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// metered is a client of a user other than root and the owner. It counts the descriptors of
// what that user registers, in all sessions together, as the daemon has a limited number
// for all users.
type metered struct {
	hetero.Client
	sessions *sessions
	user     *user
	// files counts the descriptors of each memory, guarded by sessions.mu.
	files map[hetero.MemoryID]int
}

// PreRegister counts the memory's descriptors before any is used.
func (m *metered) PreRegister(ctx context.Context, memory hetero.Memory) (hetero.MemoryID, error) {
	n := max(1, len(memory.Files))
	if memory.Share != nil {
		n = max(n, len(memory.Share.Pieces))
	}
	if err := m.take(n); err != nil {
		return 0, err
	}
	id, err := m.Client.PreRegister(ctx, memory)
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if err != nil {
		m.user.files -= n
		return 0, err
	}
	m.files[id] = n
	return id, nil
}

func (m *metered) take(n int) error {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if m.user.files+n > maxFiles {
		m.sessions.refusals.add(boundDescriptors)
		return errFiles
	}
	m.user.files += n
	return nil
}

// Unregister subtracts the descriptors of the memory.
func (m *metered) Unregister(ctx context.Context, id hetero.MemoryID) error {
	if err := m.Client.Unregister(ctx, id); err != nil {
		return err
	}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	m.user.files -= m.files[id]
	delete(m.files, id)
	return nil
}

// Continue implements continuer.
func (m *metered) Continue(ctx context.Context) error {
	if of, ok := m.Client.(continuer); ok {
		return of.Continue(ctx)
	}
	return hetero.ErrUnsupported
}

// Close subtracts all descriptors once the client has released them.
func (m *metered) Close() error {
	err := m.Client.Close()
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	for id, n := range m.files {
		m.user.files -= n
		delete(m.files, id)
	}
	return err
}

// listen counts an event stream of a user other than root and the owner. The caller calls
// leave at the end.
func (s *sessions) listen(c *conn) (leave func(), err error) {
	if c.trusted {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := c.peer.UID
	if s.listeners[uid] >= maxListeners {
		s.refusals.add(boundWatches)
		return nil, errListeners
	}
	s.listeners[uid]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listeners[uid]--; s.listeners[uid] == 0 {
			delete(s.listeners, uid)
		}
	}, nil
}
