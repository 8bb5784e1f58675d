package domain

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// mail is answers, credit and the like, which must not wait, and for which a
// link may have no room.
type mail struct {
	d *Domains

	mu sync.Mutex
	// waiting has what is to be sent to each peer; somebody sends what is there.
	// +checklocks:mu
	waiting map[wire.Rank][][]byte
	// +checklocks:mu
	closed bool
}

// maxWaiting is the most packets that wait for a peer; they are small.
const maxWaiting = 1 << 16

// send sends a packet, or leaves it to a goroutine. What can't be sent is
// lost: its session has ended, and the peer hears of that.
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

// work sends what waits for a peer.
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

// close lets nobody send any more.
func (m *mail) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// check refuses a peer that asks and does not read the answers.
func (m *mail) check(peer wire.Rank) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.waiting[peer]); n > maxWaiting {
		return fmt.Errorf("%s does not read %d answers: %w", peer, n, ErrProtocol)
	}
	return nil
}

// tell sends the peer a packet that must not wait.
func (p *pair) tell(b []byte) { p.c.d.mail.send(p.world, b) }
