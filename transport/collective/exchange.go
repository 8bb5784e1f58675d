package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// purpose is the purpose of a control message. Its numbers are on the wire.
type purpose uint16

const (
	// forOptions compares options, forCall the arguments of a call, and forState
	// where the ranks are after a link was lost.
	forOptions purpose = iota + 1
	forCall
	forState
	// forEnd is told when a rank has all that it was to get.
	forEnd
	forSuspend
	forResume
	forVerify
	// forGroup and what follows is what else the group has to agree on.
	forGroup
)

// talk is one control message in each direction with a peer.
type talk struct {
	peer plan.Rank
	link fabric.Link
	// out and in are what is said and heard. Nil is nothing, not even a header.
	out, in []byte
	// sent and got count header and body.
	sent, got  int
	head, from [headSize]byte
}

// exchange tells every other rank something, and hears as many bytes from each:
// all[r] gets those of rank r. All ranks call it, for the same purpose.
//
// Errors: ErrInconsistent for a rank that is somewhere else; those of park;
// fabric.ErrLink.
func (g *Group) exchange(ctx context.Context, why purpose, mine []byte, all [][]byte) error {
	t := g.guard.talks[:0]
	for r := range all {
		if plan.Rank(r) == g.Rank() {
			copy(all[r], mine)
			continue
		}
		t = append(t, talk{peer: plan.Rank(r), out: mine, in: all[r][:len(mine)]})
	}
	g.guard.talks = t
	return g.talkAll(ctx, why, t)
}

// settle returns when every rank has come to it: the dissemination barrier, on
// links. Whoever leaves it knows that all others have what they were to get.
func (g *Group) settle(ctx context.Context) error {
	n, me := g.Size(), int(g.Rank())
	for by := 1; by < n; by *= 2 {
		t := append(g.guard.talks[:0],
			talk{peer: plan.Rank((me + by) % n), out: g.guard.nothing[:]},
			talk{peer: plan.Rank((me - by + n) % n), in: g.guard.nothing[:]})
		g.guard.talks = t
		if err := g.talkAll(ctx, forEnd, t); err != nil {
			return err
		}
	}
	return nil
}

// talkAll does all talks side by side.
func (g *Group) talkAll(ctx context.Context, why purpose, all []talk) error {
	h := header{call: g.guard.call, kind: headControl, step: uint16(why)}
	if why == forState {
		h.call = 0 // the ranks may be in different calls
	}
	for i := range all {
		t := &all[i]
		t.link = g.fabric.Link(t.peer)
		out := h
		out.size = uint64(len(t.out))
		out.put(&t.head)
	}
	want := g.guard.want[:0]
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
		g.guard.want = want
		if len(want) == 0 {
			return nil
		}
		if moved {
			since = p.advanced(len(want), bytes) || since
			continue
		}
		if err := g.park(ctx, want, -int(why), since); err != nil {
			return err
		}
		since = false
	}
}

// try sends and receives what it can.
func (t *talk) try(h header) error {
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
