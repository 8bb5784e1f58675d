package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// messenger exchanges control messages with the other ranks over the links: everything
// other than elements. It belongs to one group; Group.mu guards it.
type messenger struct {
	fabric fabric.Fabric
	watch  *watchdog
	seq    *sequence

	// These fields are kept to avoid allocations.
	exchanges []exchange
	want      []fabric.Want
}

// exchange is an exchange with a peer: one control message in each direction.
type exchange struct {
	peer plan.Rank
	link fabric.Link
	// out is the body to send and in the one to receive. Nil means no message, not even a
	// header.
	out, in []byte
	// sent and got count bytes of header and body.
	sent, got  int
	head, from [headSize]byte
}

// exchange sends the same bytes to every other rank, and receives as many from each: all[r]
// receives those of rank r. All ranks call it, for the same purpose.
//
// Errors: ErrInconsistent for a rank that is in another call; those of park;
// fabric.ErrLink.
func (m *messenger) exchange(ctx context.Context, why purpose, mine []byte, all [][]byte) error {
	t := m.exchanges[:0]
	for r := range all {
		if plan.Rank(r) == m.fabric.Rank() {
			copy(all[r], mine)
			continue
		}
		t = append(t, exchange{peer: plan.Rank(r), out: mine, in: all[r][:len(mine)]})
	}
	m.exchanges = t
	return m.exchangeAll(ctx, why, t)
}

// settle returns when every rank has called it: a dissemination barrier over links. A rank
// that leaves it knows that all others have received everything.
func (m *messenger) settle(ctx context.Context) error {
	n, me := m.fabric.Size(), int(m.fabric.Rank())
	for by := 1; by < n; by *= 2 {
		t := append(m.exchanges[:0],
			exchange{peer: plan.Rank((me + by) % n), out: []byte{}},
			exchange{peer: plan.Rank((me - by + n) % n), in: []byte{}})
		m.exchanges = t
		if err := m.exchangeAll(ctx, forEnd, t); err != nil {
			return err
		}
	}
	return nil
}

// exchangeAll runs all exchanges concurrently.
func (m *messenger) exchangeAll(ctx context.Context, why purpose, all []exchange) error {
	h := header{call: m.seq.call, kind: headControl, step: uint16(why)}
	if why == forState {
		h.call = 0 // the ranks may be in different calls
	}
	for i := range all {
		t := &all[i]
		t.link = m.fabric.Link(t.peer)
		out := h
		out.size = uint64(len(t.out))
		out.put(&t.head)
	}
	want := m.want[:0]
	var p pace
	for since := false; ; {
		moved := false
		var bytes uint64
		want = want[:0]
		for i := range all {
			t := &all[i]
			before := t.sent + t.got
			if err := t.try(h); err != nil {
				return err
			}
			moved = moved || t.sent+t.got != before
			bytes += uint64(t.sent + t.got)
			w := fabric.Want{Peer: t.peer, Send: t.out != nil && t.sent < headSize+len(t.out), Receive: t.in != nil && t.got < headSize+len(t.in)}
			if w.Send || w.Receive {
				want = append(want, w)
			}
		}
		m.want = want
		if len(want) == 0 {
			return nil
		}
		if moved {
			since = p.advanced(len(want), bytes) || since
			continue
		}
		if err := m.watch.park(ctx, want, -int(why), since); err != nil {
			return err
		}
		since = false
	}
}

// try sends and receives what it can.
func (t *exchange) try(h header) error {
	if t.out != nil && t.sent < headSize+len(t.out) {
		head, body := t.head[min(t.sent, headSize):], t.out[max(t.sent-headSize, 0):]
		n, err := t.link.TrySend(head, body)
		if err != nil {
			return err
		}
		t.sent += n
	}
	if t.in == nil {
		return nil
	}
	if t.got < headSize {
		n, err := t.link.TryReceive(t.from[t.got:])
		if err != nil {
			return err
		}
		if t.got += n; t.got < headSize {
			return nil
		}
		h.size = uint64(len(t.in))
		if err := expect(&t.from, t.peer, h); err != nil {
			return err
		}
	}
	if body := t.in[t.got-headSize:]; len(body) > 0 {
		n, err := t.link.TryReceive(body)
		t.got += n
		return err
	}
	return nil
}

// rows returns n bytes for each rank.
func rows(ranks, n int) [][]byte {
	all := make([][]byte, ranks)
	for i := range all {
		all[i] = make([]byte, n)
	}
	return all
}
