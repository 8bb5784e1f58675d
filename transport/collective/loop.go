package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

const (
	headSize = 16
	// piece is the number of bytes that one turn of a link or of a local step moves: what
	// is combined comes out of the cache again, and the other links don't wait
	// long.
	piece = 128 << 10
	// sendPiece is the number of bytes that one turn sends: the peer has something to do
	// while we receive.
	sendPiece = 512 << 10
	// early is the number of bytes of a message that are received together with its header.
	early = 4 << 10
)

// loop runs programs. It belongs to a group, and keeps its memory from call to
// call.
type loop struct {
	fabric fabric.Fabric
	group  *Group

	task *plan.Task
	prog *program
	// memory is our own buffers, by plan.Buffer; peers those of all ranks, where
	// they are mapped.
	memory [4][]byte
	peers  [][4][]byte
	// done is the bytes of each step that are done.
	done   []uint64
	ends   []linkEnd
	want   []fabric.Want
	buffer []byte
	// phase is the number of the one that is run, and entered says that it has begun. Local is the
	// step of it that needs no link, left how many steps are not over.
	phase   int
	entered bool
	local   int
	left    int
	// moved says that this turn has.
	moved bool
	pager *pager
	count counters
	pace  pace
}

// linkEnd is the state of the exchange with one peer.
type linkEnd struct {
	link        fabric.Link
	sends, gets int
	out, in     [headSize]byte
	sent, got   int
	// rest is the bytes of an element that has come in part.
	rest  [8]byte
	nrest int
}

// counters count what went over links, but for staged and local.
type counters struct {
	sent, received, messages uint64
	// staged counts what was copied from and to devices, and local what steps did that
	// need no link.
	staged, local uint64
}

// moved is all bytes that went anywhere.
func (c *counters) moved() uint64 { return c.sent + c.received + c.staged + c.local }

func newLoop(g *Group) *loop {
	f := g.fabric
	l := &loop{fabric: f, group: g, ends: make([]linkEnd, f.Size()), want: make([]fabric.Want, 0, f.Size())}
	// What comes behind a header is at the begin of a cache line.
	l.buffer = make([]byte, 64+piece)[64-headSize:]
	l.peers = make([][4][]byte, f.Size())
	l.pager = newPager(&g.opts)
	return l
}

// begin makes the loop ready for a program.
func (l *loop) begin(task *plan.Task, prog *program) {
	l.task, l.prog = task, prog
	if cap(l.done) < len(prog.steps) {
		l.done = make([]uint64, len(prog.steps))
	}
	l.done = l.done[:len(prog.steps)]
	clear(l.done)
	l.count, l.pace = counters{}, pace{}
	l.phase, l.entered = 0, false
	l.pager.begin(prog.paging)
	for r := range l.ends {
		e := &l.ends[r]
		e.sent, e.got, e.nrest = 0, 0, 0
		if e.link == nil && plan.Rank(r) != l.fabric.Rank() {
			e.link = l.fabric.Link(plan.Rank(r))
		}
	}
}

// all does what is left of the program.
//
// +checklocksignore: Group.mu is held all along.
func (l *loop) all(ctx context.Context) error {
	for ; l.phase < len(l.prog.phases); l.phase++ {
		p := &l.prog.phases[l.phase]
		if !l.entered {
			l.enter(p)
			l.entered = true
		}
		if err := l.run(ctx, p); err != nil {
			return err
		}
		if p.sync {
			if err := l.group.sync(ctx); err != nil {
				return err
			}
		}
		l.entered = false
	}
	return nil
}

// enter begins a phase.
func (l *loop) enter(p *phase) {
	l.local, l.left = 0, p.steps
	for i := range p.lanes {
		e := &l.ends[p.lanes[i].peer]
		e.sends, e.gets = 0, 0
	}
}

// run does the steps of a phase.
func (l *loop) run(ctx context.Context, p *phase) error {
	since := false
	for l.left > 0 || l.pager.dirty > 0 {
		l.moved = false
		for i := range p.lanes {
			if err := l.send(&p.lanes[i]); err != nil {
				return err
			}
			if err := l.receive(&p.lanes[i]); err != nil {
				return err
			}
		}
		if err := l.here(p); err != nil {
			return err
		}
		if err := l.stage(ctx, p); err != nil {
			return err
		}
		if l.moved {
			since = l.pace.advanced(l.left, l.count.moved()) || since
			continue
		}
		if l.left == 0 && l.pager.dirty == 0 {
			break
		}
		step := l.wants(p)
		if len(l.want) == 0 && l.pager.busy() == 0 {
			return fmt.Errorf("%w: step %d waits for nothing that comes", plan.ErrWrong, step)
		}
		if err := l.group.park(ctx, l.want, step, since); err != nil {
			return err
		}
		since = false
	}
	return nil
}

// limit returns the number of bytes of a step that may be done now.
func (l *loop) limit(i int) uint64 {
	s := &l.prog.steps[i]
	n := s.block.len
	for _, w := range s.waits {
		have := l.done[w.step]
		switch {
		case w.follow:
			n = min(n, have)
		case have < l.prog.steps[w.step].block.len:
			return 0
		}
	}
	return n
}

// finish notes that a step may be over.
func (l *loop) finish(i int) bool {
	if l.done[i] < l.prog.steps[i].block.len {
		return false
	}
	l.left--
	return true
}

// part is n bytes of a span from off on.
func (l *loop) part(s span, off, n uint64) []byte {
	if l.pager.stages(s.buffer) {
		return l.pager.bytes(s, off, n)
	}
	m := l.memory[s.buffer]
	return m[s.off+off : s.off+off+n : s.off+off+n]
}

// send sends what a peer takes.
func (l *loop) send(p *lane) error {
	e := &l.ends[p.peer]
	for budget := sendPiece; budget > 0 && e.sends < len(p.sends); {
		i := p.sends[e.sends]
		s := &l.prog.steps[i]
		from := l.done[i]
		to := l.ready(i, from, l.limit(i))
		if to <= from {
			return nil
		}
		if e.sent == 0 && from == 0 {
			l.group.stamp(&e.out, s.nth, s.block.len)
		}
		body := l.part(s.block, from, min(to-from, uint64(budget)))
		head := e.out[e.sent:]
		var n int
		var err error
		if s.lend {
			n, err = e.link.TryLend(head, body)
		} else {
			n, err = e.link.TrySend(head, body)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		l.moved = true
		l.count.sent += uint64(n)
		h := min(n, len(head))
		e.sent += h
		l.done[i] += uint64(n - h)
		budget -= n
		if l.finish(i) {
			l.count.messages++
			e.sends, e.sent = e.sends+1, 0
			continue
		}
		if n < len(head)+len(body) {
			return nil
		}
	}
	return nil
}

// receive takes what has come from a peer.
func (l *loop) receive(p *lane) error {
	e := &l.ends[p.peer]
	for budget := piece; budget > 0 && e.gets < len(p.receive); {
		i := p.receive[e.gets]
		from := l.done[i]
		to := l.ready(i, from, l.floor(i, l.limit(i)))
		if to <= from {
			return nil
		}
		asked, n, err := l.take(e, p.peer, i, min(to-from, uint64(budget)))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		l.moved = true
		l.count.received += uint64(n)
		budget -= n
		if l.finish(i) {
			e.gets, e.got = e.gets+1, 0
			continue
		}
		if n < asked {
			return nil
		}
	}
	return nil
}

// floor cuts a limit to whole elements where a step combines.
func (l *loop) floor(i int, n uint64) uint64 {
	if l.prog.steps[i].action == plan.Receive {
		return n
	}
	return n - n%l.prog.element
}

// take receives up to n bytes of a step, and its header before, and says how
// many it asked for and got.
func (l *loop) take(e *linkEnd, peer plan.Rank, i int, n uint64) (asked, got int, err error) {
	s := &l.prog.steps[i]
	if e.got < headSize {
		p := l.buffer[e.got : headSize+min(n, early)]
		if got, err = e.link.TryReceive(p); got == 0 || err != nil {
			return len(p), got, err
		}
		copy(l.buffer, e.in[:e.got])
		all := e.got + got
		if e.got = min(all, headSize); e.got < headSize {
			copy(e.in[:], l.buffer[:e.got])
			return len(p), got, nil
		}
		copy(e.in[:], l.buffer)
		if err = l.group.verifyHead(&e.in, peer, s.nth, s.block.len); err != nil {
			return len(p), got, err
		}
		return len(p), got, l.place(e, i, l.buffer[headSize:all])
	}
	if s.action == plan.Receive {
		p := l.part(s.block, l.done[i], n)
		got, err = e.link.TryReceive(p)
		l.done[i] += uint64(got)
		return len(p), got, err
	}
	begin := headSize + e.nrest
	p := l.buffer[begin : headSize+n]
	if got, err = e.link.TryReceive(p); got == 0 || err != nil {
		return len(p), got, err
	}
	copy(l.buffer[headSize:], e.rest[:e.nrest])
	return len(p), got, l.place(e, i, l.buffer[headSize:begin+got])
}

// place puts or combines bytes that have come in the buffer to where they
// belong.
func (l *loop) place(e *linkEnd, i int, p []byte) error {
	s := &l.prog.steps[i]
	at := l.done[i]
	if s.action == plan.Receive {
		copy(l.part(s.block, at, uint64(len(p))), p)
		l.done[i] += uint64(len(p))
		return nil
	}
	whole := uint64(len(p)) - uint64(len(p))%l.prog.element
	e.nrest = copy(e.rest[:], p[whole:])
	if whole == 0 {
		return nil
	}
	l.done[i] += whole
	return elem.Combine(l.task.Op, l.task.Type, l.part(s.block, at, whole), l.part(s.from, at, whole), p[:whole])
}

// wants lists the links that the phase waits for, and returns one of the steps.
func (l *loop) wants(p *phase) (step int) {
	l.want = l.want[:0]
	for i := range p.lanes {
		lane := &p.lanes[i]
		e := &l.ends[lane.peer]
		w := fabric.Want{Peer: lane.peer}
		if e.sends < len(lane.sends) {
			k := lane.sends[e.sends]
			if w.Send = l.ready(k, l.done[k], l.limit(k)) > l.done[k]; w.Send {
				step = k
			}
		}
		if e.gets < len(lane.receive) {
			k := lane.receive[e.gets]
			if w.Receive = l.ready(k, l.done[k], l.floor(k, l.limit(k))) > l.done[k]; w.Receive {
				step = k
			}
		}
		if w.Send || w.Receive {
			l.want = append(l.want, w)
		}
	}
	return step
}
