package domain

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// mail sends answers, credit and the like, which must not block even if a link has no room.
type mail struct {
	d *Domains

	mu sync.Mutex
	// waiting holds the packets to be sent to each peer; while there is an entry, a
	// goroutine sends them.
	// +checklocks:mu
	waiting map[wire.Rank][][]byte
	// +checklocks:mu
	closed bool
}

// maxWaiting bounds the packets that wait for a peer; they are small.
const maxWaiting = 1 << 16

// send sends a packet, or leaves it to a goroutine. A packet that can't be sent is dropped:
// its session has ended, and the peer notices that.
func (m *mail) send(to wire.Rank, p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	waiting, busy := m.waiting[to]
	if !busy {
		sent, err := m.d.c.TryPacket(to, wire.PortDomain, p)
		if sent || err != nil {
			return
		}
		m.d.running.Go(func() { m.work(to) })
	}
	m.waiting[to] = append(waiting, bytes.Clone(p))
}

// work sends the packets that wait for a peer.
func (m *mail) work(to wire.Rank) {
	for {
		m.mu.Lock()
		all := m.waiting[to]
		if len(all) == 0 {
			delete(m.waiting, to)
			m.mu.Unlock()
			return
		}
		m.waiting[to] = nil
		m.mu.Unlock()
		for _, p := range all {
			if m.d.c.SendPacket(m.d.life, to, wire.PortDomain, p) != nil {
				break
			}
		}
	}
}

// close rejects all further packets.
func (m *mail) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// check rejects a peer that sends requests and does not read the answers.
func (m *mail) check(peer wire.Rank) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.waiting[peer]); n > maxWaiting {
		return fmt.Errorf("%s leaves %d answers unread: %w", peer, n, ErrProtocol)
	}
	return nil
}

// tell sends the peer a packet without blocking.
func (p *pair) tell(b []byte) { p.c.d.mail.send(p.world, b) }
