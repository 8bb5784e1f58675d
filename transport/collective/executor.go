package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

const (
	// piece bounds the bytes that a link receives, and half of those that local steps move,
	// in one turn: the bytes to combine are still in the cache, and other links do not wait
	// for long.
	piece = 128 << 10
	// sendPiece bounds the bytes sent in one turn: the peer has work while we receive.
	sendPiece = 512 << 10
	// early bounds the bytes of a message that are received together with its header.
	early = 4 << 10
)

// executor executes the program of one call in the caller's goroutine. It receives work,
// and uses the group's links, its sequence (the headers of messages), hostSync (for Sync
// steps) and watchdog (for all other waits); it does not know the purpose of the call, or
// how errors are handled. run returns its error, and count holds what it has moved; after
// an error run can be called again and continues where it was, unless a link was lost. Its
// memory is reused from call to call. Group.mu guards it.
type executor struct {
	fabric fabric.Fabric
	seq    *sequence
	sync   *hostSync
	watch  *watchdog

	task *plan.Task
	// memory holds our own buffers, by plan.Buffer.
	memory [4][]byte
	progress
	stager *stager
	folder *folder
	ends   []linkEnd
	want   []fabric.Want
	buffer []byte
	// moved reports that this turn has made progress.
	moved bool
	count counters
	pace  pace
}

// work holds the plan and the buffers of one call for the executor.
type work struct {
	task *plan.Task
	prog *program
	// memory holds our own buffers, by plan.Buffer, and views those of them that are
	// staged. If the program uses mapped memory, executor.folder holds that of all ranks.
	memory [4][]byte
	views  [4]domain.View
}

// linkEnd is the state of the exchange with one peer.
type linkEnd struct {
	link      fabric.Link
	out, in   [headSize]byte
	sent, got int
	// rest holds the bytes of a partially received element.
	rest  [8]byte
	nrest int
}

func newExecutor(f fabric.Fabric, seq *sequence, meet *hostSync, watch *watchdog, o *Options) *executor {
	x := &executor{
		fabric: f, seq: seq, sync: meet, watch: watch,
		progress: progress{lanes: make([]cursor, f.Size())}, ends: make([]linkEnd, f.Size()), want: make([]fabric.Want, 0, f.Size()),
	}
	// The bytes after a header are at the beginning of a cache line.
	x.buffer = make([]byte, 64+piece)[64-headSize:]
	x.folder = &folder{peers: make([][4][]byte, f.Size()), buffer: x.buffer[headSize:]}
	x.stager = newStager(f, &x.progress, o)
	return x
}

// begin prepares the executor for new work. The memory that all ranks have mapped is set in
// folder before run.
func (x *executor) begin(w work) {
	x.task, x.memory = w.task, w.memory
	x.start(w.prog)
	x.count, x.pace = counters{}, pace{}
	x.stager.begin(w.prog.paging, w.views)
	for r := range x.ends {
		e := &x.ends[r]
		e.sent, e.got, e.nrest = 0, 0, 0
		if e.link == nil && plan.Rank(r) != x.fabric.Rank() {
			e.link = x.fabric.Link(plan.Rank(r))
		}
	}
}

func (x *executor) close() error { return x.stager.pager.close() }

// run executes the rest of the program.
func (x *executor) run(ctx context.Context) error {
	for ; x.phase < len(x.prog.phases); x.phase++ {
		p := &x.prog.phases[x.phase]
		if !x.entered {
			x.enter(p)
		}
		if err := x.runPhase(ctx, p); err != nil {
			return err
		}
		if p.sync {
			if err := x.sync.sync(ctx, x.phase); err != nil {
				return err
			}
		}
		x.entered = false
	}
	return nil
}

// runPhase executes the steps of a phase.
func (x *executor) runPhase(ctx context.Context, p *phase) error {
	since := false
	for x.left > 0 || x.stager.pager.dirty > 0 {
		x.moved = false
		if err := x.advance(p); err != nil {
			return err
		}
		staged, err := x.stager.turn(ctx, p)
		x.count.staged, x.moved = x.stager.staged, x.moved || staged
		if err != nil {
			return err
		}
		if x.moved {
			since = x.pace.advanced(x.left, x.count.moved()) || since
			continue
		}
		if x.left == 0 && x.stager.pager.dirty == 0 {
			break
		}
		step := x.wants(p)
		if len(x.want) == 0 && x.stager.pager.busy() == 0 {
			return fmt.Errorf("%w: step %d waits for data that never arrives", plan.ErrWrong, step)
		}
		if err := x.watch.park(ctx, x.want, step, since); err != nil {
			return err
		}
		since = false
	}
	return nil
}

// advance executes what can be executed now, over each lane and here.
func (x *executor) advance(p *phase) error {
	for i := range p.lanes {
		if err := x.send(&p.lanes[i]); err != nil {
			return err
		}
		if err := x.receive(&p.lanes[i]); err != nil {
			return err
		}
	}
	return x.here(p)
}

// here executes steps that need no link, in order.
func (x *executor) here(p *phase) error {
	for budget := 2 * piece; budget > 0 && x.local < len(p.local); {
		i := p.local[x.local]
		from := x.done[i]
		to := x.stager.ready(i, from, x.limit(i))
		to -= to % x.prog.element
		n := min(to-min(from, to), uint64(budget))
		n -= n % x.prog.element
		if n == 0 {
			return nil
		}
		if err := x.do(&x.prog.steps[i], from, n); err != nil {
			return err
		}
		x.moved = true
		x.done[i] += n
		x.count.local += n
		budget -= int(n)
		if x.finish(i) {
			x.local++
		}
	}
	return nil
}

// do executes n bytes of a step, starting at offset at.
func (x *executor) do(s *step, at, n uint64) error {
	switch s.Action {
	case plan.Copy:
		copy(x.part(s.Block, at, n), x.part(s.From, at, n))
	case plan.CombineFrom:
		dst := x.part(s.Block, at, n)
		return elem.Combine(x.task.Op, x.task.Type, dst, dst, x.part(s.From, at, n))
	case plan.DivideBy:
		return elem.Divide(x.task.Type, x.part(s.Block, at, n), uint64(x.task.Ranks))
	case plan.Fetch:
		copy(x.part(s.Block, at, n), x.folder.part(s.Peer, s.From, at, n))
	case plan.Fold:
		return x.folder.fold(x.task, &s.Step, at, n)
	default:
		// All other actions need a link.
	}
	return nil
}

// part returns n bytes of a span, starting at offset off.
func (x *executor) part(s span, off, n uint64) []byte {
	if x.stager.pager.stages(s.Buffer) {
		return x.stager.pager.bytes(s, off, n)
	}
	m := x.memory[s.Buffer]
	return m[s.Off+off : s.Off+off+n : s.Off+off+n]
}

// send sends as much as a peer accepts.
func (x *executor) send(p *lane) error {
	e, at := &x.ends[p.peer], &x.lanes[p.peer]
	for budget := sendPiece; budget > 0 && at.sends < len(p.sends); {
		i := p.sends[at.sends]
		s := &x.prog.steps[i]
		from := x.done[i]
		to := x.stager.ready(i, from, x.limit(i))
		if to <= from {
			return nil
		}
		if e.sent == 0 && from == 0 {
			x.seq.stamp(&e.out, s.nth, s.Block.Len)
		}
		body := x.part(s.Block, from, min(to-from, uint64(budget)))
		head := e.out[e.sent:]
		var n int
		var err error
		if s.zeroCopy {
			n, err = e.link.TrySendZeroCopy(head, body)
		} else {
			n, err = e.link.TrySend(head, body)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		x.moved = true
		x.count.sent += uint64(n)
		h := min(n, len(head))
		e.sent += h
		x.done[i] += uint64(n - h)
		budget -= n
		if x.finish(i) {
			x.count.messages++
			at.sends, e.sent = at.sends+1, 0
			continue
		}
		if n < len(head)+len(body) {
			return nil
		}
	}
	return nil
}

// receive receives the bytes that have arrived from a peer.
func (x *executor) receive(p *lane) error {
	e, at := &x.ends[p.peer], &x.lanes[p.peer]
	for budget := piece; budget > 0 && at.gets < len(p.receive); {
		i := p.receive[at.gets]
		from := x.done[i]
		to := x.stager.ready(i, from, x.floor(i, x.limit(i)))
		if to <= from {
			return nil
		}
		asked, n, err := x.take(e, p.peer, i, min(to-from, uint64(budget)))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		x.moved = true
		x.count.received += uint64(n)
		budget -= n
		if x.finish(i) {
			at.gets, e.got = at.gets+1, 0
			continue
		}
		if n < asked {
			return nil
		}
	}
	return nil
}

// take receives up to n bytes of a step, and its header first. It returns the numbers of
// bytes requested and received.
func (x *executor) take(e *linkEnd, peer plan.Rank, i int, n uint64) (asked, got int, err error) {
	s := &x.prog.steps[i]
	if e.got < headSize {
		p := x.buffer[e.got : headSize+min(n, early)]
		if got, err = e.link.TryReceive(p); got == 0 || err != nil {
			return len(p), got, err
		}
		copy(x.buffer, e.in[:e.got])
		all := e.got + got
		if e.got = min(all, headSize); e.got < headSize {
			copy(e.in[:], x.buffer[:e.got])
			return len(p), got, nil
		}
		copy(e.in[:], x.buffer)
		if err = x.seq.verify(&e.in, peer, s.nth, s.Block.Len); err != nil {
			return len(p), got, err
		}
		return len(p), got, x.place(e, i, x.buffer[headSize:all])
	}
	if s.Action == plan.Receive {
		p := x.part(s.Block, x.done[i], n)
		got, err = e.link.TryReceive(p)
		x.done[i] += uint64(got)
		return len(p), got, err
	}
	begin := headSize + e.nrest
	p := x.buffer[begin : headSize+n]
	if got, err = e.link.TryReceive(p); got == 0 || err != nil {
		return len(p), got, err
	}
	copy(x.buffer[headSize:], e.rest[:e.nrest])
	return len(p), got, x.place(e, i, x.buffer[headSize:begin+got])
}

// place copies or combines the received bytes p into the block of a step.
func (x *executor) place(e *linkEnd, i int, p []byte) error {
	s := &x.prog.steps[i]
	at := x.done[i]
	if s.Action == plan.Receive {
		copy(x.part(s.Block, at, uint64(len(p))), p)
		x.done[i] += uint64(len(p))
		return nil
	}
	whole := uint64(len(p)) - uint64(len(p))%x.prog.element
	e.nrest = copy(e.rest[:], p[whole:])
	if whole == 0 {
		return nil
	}
	x.done[i] += whole
	return elem.Combine(x.task.Op, x.task.Type, x.part(s.Block, at, whole), x.part(s.From, at, whole), p[:whole])
}

// wants lists the links that the phase waits for, and returns one of the steps.
func (x *executor) wants(p *phase) (step int) {
	x.want = x.want[:0]
	for i := range p.lanes {
		lane := &p.lanes[i]
		at := x.lanes[lane.peer]
		w := fabric.Want{Peer: lane.peer}
		if at.sends < len(lane.sends) {
			k := lane.sends[at.sends]
			if w.Send = x.stager.ready(k, x.done[k], x.limit(k)) > x.done[k]; w.Send {
				step = k
			}
		}
		if at.gets < len(lane.receive) {
			k := lane.receive[at.gets]
			if w.Receive = x.stager.ready(k, x.done[k], x.floor(k, x.limit(k))) > x.done[k]; w.Receive {
				step = k
			}
		}
		if w.Send || w.Receive {
			x.want = append(x.want, w)
		}
	}
	return step
}
