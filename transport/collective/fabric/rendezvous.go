package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// grace bounds the time to reconnect to a rank whose session has ended.
const grace = time.Second

// The intervals at which our contribution is sent again to a rank that has not answered.
const (
	soonest = 20 * time.Millisecond
	latest  = time.Second
)

// maxParts bounds the parts kept of a rank before they are needed: it is at most one
// rendezvous ahead, and may have begun a new epoch.
const maxParts = 4

// errAnew reports that a rank makes all links anew.
var errAnew = errors.New("the peer is re-establishing its links")

// rendezvousSeries are the rendezvous of the ranks of a fabric. In each, every rank brings a
// contribution for every other rank, and receives those of all others. An epoch lasts from
// one Reform to the next; rendezvous are numbered within it.
type rendezvousSeries struct {
	mu sync.Mutex
	// +checklocks:mu
	epoch, seq uint32
	// newest is the latest epoch that another rank has begun.
	// +checklocks:mu
	newest uint32
	// failed reports that a rendezvous of this epoch, or the step after it, has failed.
	// +checklocks:mu
	failed bool
	// forming cancels the copy that is being formed; nil if there is none. A rank in a
	// later epoch takes no part in it.
	// +checklocks:mu
	forming context.CancelCauseFunc
	// sent holds our contributions to the rendezvous of this epoch, by number and rank.
	// +checklocks:mu
	sent map[uint32][][]byte
	// +checklocks:mu
	peers []peer
}

// peer is the state of another rank.
type peer struct {
	// nonce is the number of its fabric; knows reports that it knows ours.
	nonce uint64
	knows bool
	// parts are its contributions, in order.
	parts []packet
	// away reports that its session has ended and a goroutine is reconnecting; dead is the
	// error if that failed.
	away bool
	dead error
	// left reports that it has closed its fabric.
	left bool
}

// find returns a rank's contribution to a rendezvous, and drops earlier ones.
func (p *peer) find(epoch, seq uint32) (blob []byte, found bool) {
	for len(p.parts) > 0 && p.parts[0].compare(epoch, seq) < 0 {
		p.parts = p.parts[1:]
	}
	if len(p.parts) == 0 || p.parts[0].compare(epoch, seq) > 0 {
		return nil, false
	}
	return p.parts[0].blob, true
}

// keep keeps a contribution, unless a later one is known.
func (p *peer) keep(in packet) {
	n := len(p.parts)
	if n > 0 && p.parts[n-1].compare(in.epoch, in.seq) >= 0 {
		return
	}
	if n == maxParts {
		p.parts = p.parts[1:]
	}
	in.blob = bytes.Clone(in.blob)
	p.parts = append(p.parts, in)
}

// packet handles a packet of a peer, in the goroutine that receives from it. The fabric may
// have been closed, and its states freed, since the packet was assigned to it.
func (o *over) packet(from comm.Origin, in *packet) {
	if !o.gate.Enter() {
		return
	}
	defer o.gate.Leave()
	rank, ok := o.rankOf(from.Rank)
	if !ok || in.to != 0 && in.to != o.nonce {
		return
	}
	answer, lost := o.took(rank, in)
	if lost != nil {
		o.hearLost(rank, lost)
	}
	if answer != nil {
		// If there is no room now, the peer asks again.
		_, _ = o.c.TryPacketIn(from, wire.PortFabric, answer.encode())
	}
	o.notify()
}

// took records a packet. It returns the answer to it, and the reason why the links with its
// sender are lost, if they are.
func (o *over) took(rank plan.Rank, in *packet) (answer *packet, lost error) {
	m := &o.series
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[rank]
	if p.nonce != in.from {
		if p.nonce != 0 && (m.epoch > 0 || m.seq > 1) {
			return nil, nil // from an earlier or a later fabric of that name
		}
		*p = peer{nonce: in.from}
	}
	p.knows = p.knows || in.to == o.nonce
	if in.kind == kindBye {
		p.left = true
		return nil, errEnded
	}
	if in.epoch > m.newest {
		m.newest = in.epoch
	}
	if in.epoch > m.epoch {
		if len(in.blob) == 0 {
			lost = errAnew // Reform begins with this; Duplicate leaves links alone
		}
		if m.forming != nil {
			m.forming(errAnew)
		}
	}
	if in.epoch > m.epoch || in.epoch == m.epoch && in.seq+1 >= m.seq {
		p.keep(*in)
	}
	if !in.have && in.epoch == m.epoch && m.sent[in.seq] != nil {
		answer = o.partLocked(rank, in.seq, true)
	}
	return answer, lost
}

// partLocked returns the packet with our contribution for a rank.
//
// +checklocks:o.series.mu
func (o *over) partLocked(to plan.Rank, seq uint32, have bool) *packet {
	m := &o.series
	return &packet{
		kind: kindPart, have: have, epoch: m.epoch, seq: seq, from: o.nonce, to: m.peers[to].nonce, name: o.name, blob: m.sent[seq][to],
	}
}

// begin begins a new epoch: the next one, or a later one that other ranks are in already.
func (m *rendezvousSeries) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch, m.seq = max(m.epoch+1, m.newest), 0
	m.failed, m.sent = false, map[uint32][][]byte{}
	for i := range m.peers {
		m.peers[i].dead = nil
	}
}

// rendezvous takes part in the next rendezvous with a contribution for each rank, and returns the
// contributions of all ranks.
//
// Errors: errAnew if a rank has begun a later epoch; a MissingError; ErrInterrupted;
// ErrLink if an earlier rendezvous has failed.
func (o *over) rendezvous(ctx context.Context, bring func(to plan.Rank) []byte) ([][]byte, error) {
	m := &o.series
	m.mu.Lock()
	if m.failed {
		m.mu.Unlock()
		return nil, fmt.Errorf("%w: a rank did not take part in an earlier exchange", ErrLink)
	}
	seq, mine := m.seq, make([][]byte, len(m.peers))
	m.seq++
	for r := range m.peers {
		mine[r] = bring(plan.Rank(r))
	}
	m.sent[seq] = mine
	delete(m.sent, seq-3)
	m.mu.Unlock()
	got, err := o.gather(ctx, seq)
	if err != nil {
		m.mu.Lock()
		m.failed = true
		m.mu.Unlock()
	}
	return got, err
}

// gather sends our contribution until those of all other ranks have arrived.
func (o *over) gather(ctx context.Context, seq uint32) ([][]byte, error) {
	pause := soonest
	o.tell(seq, o.others) //nolint:contextcheck // the callback belongs to the fabric, not to the call
	for again := false; ; {
		got, missing, err := o.collect(seq)
		if err != nil || missing == nil {
			return got, err
		}
		if again {
			o.tell(seq, missing) //nolint:contextcheck // the callback belongs to the fabric, not to the call
		}
		again = false
		timer := time.NewTimer(pause)
		select {
		case <-o.changed:
		case <-o.interrupted:
			if o.stopped.Swap(false) {
				err = ErrInterrupted
			}
		case <-ctx.Done():
			err = &MissingError{Ranks: missing, Err: ctx.Err()}
		case <-timer.C:
			again, pause = true, min(2*pause, latest)
		}
		timer.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// collect returns the contributions to a rendezvous, and the ranks whose are missing.
func (o *over) collect(seq uint32) (got [][]byte, missing []plan.Rank, err error) {
	m := &o.series
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest > m.epoch {
		return nil, nil, errAnew
	}
	var dead []plan.Rank
	var why []error
	got = make([][]byte, len(m.peers))
	for r := range m.peers {
		p := &m.peers[r]
		if r == int(o.me) {
			got[r] = m.sent[seq][r]
			continue
		}
		blob, found := p.find(m.epoch, seq)
		got[r] = blob
		if found && p.knows {
			continue
		}
		missing = append(missing, plan.Rank(r))
		if p.left && !found {
			p.dead = errEnded
		}
		if p.dead != nil {
			dead, why = append(dead, plan.Rank(r)), append(why, p.dead)
		}
	}
	if dead != nil {
		return nil, nil, &MissingError{Ranks: dead, Err: errors.Join(why...)}
	}
	return got, missing, nil
}

// tell sends our contribution to some ranks. If a rank can't be reached, it is reconnected
// in the background.
func (o *over) tell(seq uint32, ranks []plan.Rank) {
	m := &o.series
	for _, r := range ranks {
		m.mu.Lock()
		_, have := m.peers[r].find(m.epoch, seq)
		have = have && m.peers[r].knows
		text := o.partLocked(r, seq, have).encode()
		m.mu.Unlock()
		if _, err := o.c.TryPacket(o.worlds[r], wire.PortFabric, text); err == nil {
			continue
		}
		m.mu.Lock()
		call := !m.peers[r].away && m.peers[r].dead == nil
		m.peers[r].away = true
		m.mu.Unlock()
		if call {
			o.running.Go(func() { o.callBack(r) })
		}
	}
}

// callBack reconnects to a rank whose session has ended.
func (o *over) callBack(r plan.Rank) {
	ctx, cancel := context.WithTimeout(o.life, grace)
	defer cancel()
	err := o.c.Reconnect(ctx, o.worlds[r])
	m := &o.series
	m.mu.Lock()
	m.peers[r].away, m.peers[r].dead = false, err
	m.mu.Unlock()
	o.notify()
}

// notify makes a waiter in a rendezvous look again.
func (o *over) notify() { signal(o.changed) }
