package collective

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// model simulates a group without bytes: ranks make calls, send each other what they
// have received so far, and recover by the rule and the tally of the group. explore
// tries every order of events.
type model struct {
	ranks, calls int
	// edges lists the sender and the receiver of each message of a call.
	edges [][2]int
	// inPlace has the first message that arrives overwrite the source, of which the
	// rank has no copy. A rank with a copy behaves as in a call that is not in place.
	inPlace bool
	// settle has a call end when all ranks have received everything.
	settle  bool
	retries int
	// cuts limits the links that are lost, and leaves the calls that their caller
	// gives up.
	cuts, leaves int
}

// modelRank holds the state of one rank.
type modelRank struct {
	tally
	// made counts the calls of the program, with the current one: the number that
	// the current call must have.
	made uint32
	at   stage
	// idle: between calls. recovering: waiting for the other ranks after an error.
	// lost: has to recover at the beginning of the next call.
	idle, recovering, lost bool
	tries                  uint16
	// sent and got have a bit for each rank in the current stage.
	sent, got uint8
	// dirty: this try has overwritten the source. stale: an earlier one has.
	dirty, stale bool
	// wrong: the result contains data of another call.
	wrong bool
}

// modelMessage travels from one rank to another.
type modelMessage struct {
	// number and end are in the header.
	number uint32
	end    bool
	// call is the program's call whose source was sent; stale: it was overwritten.
	call  uint32
	stale bool
}

// modelState holds the state of all ranks and of the messages between them.
type modelState struct {
	ranks []modelRank
	// links is indexed by sender × ranks + receiver. down is indexed by rank × ranks +
	// peer: the rank has noticed that the link is lost, or will.
	links [][]modelMessage
	down  []bool
	// aligned: since all ranks recovered together no link was lost, and no call was
	// given up.
	aligned      bool
	cuts, leaves int
}

// clone copies the state. Messages are never changed, so links may share them.
func (s *modelState) clone() *modelState {
	c := *s
	c.ranks, c.down, c.links = slices.Clone(s.ranks), slices.Clone(s.down), slices.Clone(s.links)
	return &c
}

// symmetry renames ranks: rank i becomes to[i], and from undoes that. masks renames
// the bits of a set of ranks.
type symmetry struct {
	to, from []int
	masks    []uint8
}

// symmetries returns the renamings that leave the edges as they are. States that differ
// by one of them have the same future, since the rule treats all ranks alike.
func (m *model) symmetries() (all []symmetry) {
	var extend func(to []int)
	extend = func(to []int) {
		for p := range m.ranks {
			if !slices.Contains(to, p) {
				extend(append(slices.Clone(to), p))
			}
		}
		if len(to) < m.ranks || slices.ContainsFunc(m.edges, func(e [2]int) bool { return !slices.Contains(m.edges, [2]int{to[e[0]], to[e[1]]}) }) {
			return
		}
		x := symmetry{to: to, from: make([]int, m.ranks), masks: make([]uint8, 1<<m.ranks)}
		for i, p := range to {
			x.from[p] = i
			for set := range x.masks {
				x.masks[set] |= uint8(set>>i&1) << p
			}
		}
		all = append(all, x)
	}
	extend(nil)
	return all
}

// appendKey encodes the state with its ranks renamed.
func (s *modelState) appendKey(k []byte, x *symmetry) []byte {
	k = append(k, byte(s.cuts), byte(s.leaves), flags(s.aligned))
	for _, i := range x.from {
		r := &s.ranks[i]
		k = append(k, byte(r.call), byte(r.lapsed), byte(r.made), byte(r.at), byte(r.tries), x.masks[r.sent], x.masks[r.got],
			flags(r.idle, r.recovering, r.lost, r.dirty, r.stale, r.wrong))
	}
	for _, a := range x.from {
		for _, b := range x.from {
			i := a*len(s.ranks) + b
			k = append(k, byte(len(s.links[i]))<<1|flags(s.down[i]))
			for _, x := range s.links[i] {
				k = append(k, byte(x.number), byte(x.call), flags(x.end, x.stale))
			}
		}
	}
	return k
}

// stateSet holds the hashes of states, up to symmetry.
type stateSet struct {
	symmetries []symmetry
	seed       maphash.Seed
	seen       map[uint64]struct{}
	key, least []byte
}

// add adds a state, and reports whether it is new.
func (v *stateSet) add(s *modelState) bool {
	for i := range v.symmetries {
		v.key = s.appendKey(v.key[:0], &v.symmetries[i])
		if i == 0 || bytes.Compare(v.key, v.least) < 0 {
			v.key, v.least = v.least, v.key
		}
	}
	before := len(v.seen)
	v.seen[maphash.Bytes(v.seed, v.least)] = struct{}{}
	return len(v.seen) > before
}

func flags(all ...bool) (set byte) {
	for i, is := range all {
		if is {
			set |= 1 << i
		}
	}
	return set
}

// cut drops the link between two ranks, with the messages on it.
func (m *model) cut(s *modelState, a, b int) {
	s.links[a*m.ranks+b], s.links[b*m.ranks+a] = nil, nil
	s.down[a*m.ranks+b], s.down[b*m.ranks+a] = true, true
}

// peers returns the ranks that a rank sends to or receives from in its stage.
func (m *model) peers(r *modelRank, me int, sends bool) (out []int) {
	if r.at == settling {
		for p := range m.ranks {
			if p != me {
				out = append(out, p)
			}
		}
		return out
	}
	for _, e := range m.edges {
		if sends && e[0] == me {
			out = append(out, e[1])
		}
		if !sends && e[1] == me {
			out = append(out, e[0])
		}
	}
	return out
}

// end ends the call of a rank. One lost link does not make a call fail that settles and
// keeps its source.
func (m *model) end(s *modelState, me int, failed bool) error {
	r := &s.ranks[me]
	whole := r.at == settling || r.got == setOfPeers(m.peers(r, me, false))
	if !failed && (!whole || r.wrong || r.call != r.made) {
		return fmt.Errorf("rank %d returns nil for call %d, which has number %d; whole %v, of another call %v", me, r.made, r.call, whole, r.wrong)
	}
	if failed && m.settle && !m.inPlace && s.cuts <= 1 && s.leaves == 0 {
		return fmt.Errorf("call %d fails at rank %d, though it can be repeated at all ranks", r.made, me)
	}
	r.finish()
	return nil
}

// finish resets what belongs to the current call.
func (r *modelRank) finish() {
	*r = modelRank{tally: r.tally, made: r.made, idle: true, lost: r.lost}
}

// fail ends a try of a rank, which recovers with the others.
func (m *model) fail(s *modelState, me int) {
	r := &s.ranks[me]
	if r.at != fresh {
		r.tries++
	}
	r.recovering = true
	m.isolate(s, me)
}

// isolate drops all links of a rank.
func (m *model) isolate(s *modelState, me int) {
	for p := range m.ranks {
		if p != me {
			m.cut(s, me, p)
		}
	}
}

// begin begins the next call of a rank.
func (m *model) begin(s *modelState, me int) error {
	r := &s.ranks[me]
	r.idle = false
	r.made++
	if r.next() {
		return m.end(s, me, true)
	}
	r.at = comparing
	if r.lost {
		r.at = fresh
		m.fail(s, me)
	}
	return nil
}

// step returns the states that one rank can go on to.
func (m *model) step(s *modelState, me int) (next []*modelState, err error) {
	r := &s.ranks[me]
	switch {
	case r.recovering:
		return m.alone(s, me)
	case r.idle && int(r.made) == m.calls:
		return nil, nil
	case r.idle:
		c := s.clone()
		return []*modelState{c}, m.begin(c, me)
	}
	out, in := m.peers(r, me, true), m.peers(r, me, false)
	for _, p := range append(slices.Clone(out), in...) {
		if s.down[me*m.ranks+p] || m.left(s, me, p, in) {
			c := s.clone()
			m.fail(c, me)
			return []*modelState{c}, nil
		}
	}
	if s.leaves < m.leaves {
		c := s.clone()
		c.leaves++
		c.aligned = false
		c.ranks[me].lost = true
		c.ranks[me].finish()
		next = append(next, c)
	}
	for _, p := range out {
		if r.sent>>p&1 == 0 {
			next = append(next, m.send(s, me, p))
		}
	}
	for _, p := range in {
		if q := s.links[p*m.ranks+me]; r.got>>p&1 == 0 && len(q) > 0 {
			c, rerr := m.receive(s, me, p, q[0])
			if rerr != nil {
				return nil, rerr
			}
			next = append(next, c)
		}
	}
	if r.sent == setOfPeers(out) && r.got == setOfPeers(in) {
		c := s.clone()
		if m.settle && r.at != settling {
			c.ranks[me].at, c.ranks[me].sent, c.ranks[me].got = settling, 0, 0
		} else if err = m.end(c, me, false); err != nil {
			return nil, err
		}
		next = append(next, c)
	}
	return next, nil
}

// left reports whether a rank waits for one that has made all its calls.
func (m *model) left(s *modelState, me, peer int, in []int) bool {
	r, p := &s.ranks[me], &s.ranks[peer]
	return p.idle && int(p.made) == m.calls && slices.Contains(in, peer) && r.got>>peer&1 == 0 && len(s.links[peer*m.ranks+me]) == 0
}

func setOfPeers(ranks []int) (set uint8) {
	for _, r := range ranks {
		set |= 1 << r
	}
	return set
}

func (m *model) send(s *modelState, me, to int) *modelState {
	c := s.clone()
	r, link := &c.ranks[me], &c.links[me*m.ranks+to]
	r.at = max(r.at, started)
	r.sent |= 1 << to
	// A rank sends on what it has received from ranks of the same call.
	*link = append(slices.Clip(*link), modelMessage{number: r.call, end: r.at == settling, call: r.made, stale: r.stale || r.wrong})
	return c
}

func (m *model) receive(s *modelState, me, from int, x modelMessage) (*modelState, error) {
	c := s.clone()
	r, link := &c.ranks[me], &c.links[from*m.ranks+me]
	*link = (*link)[1:]
	r.at = max(r.at, started)
	if x.number != r.call || x.end != (r.at == settling) {
		if s.aligned {
			return nil, fmt.Errorf("rank %d is in call %d and meets rank %d in call %d, though all have recovered together", me, r.call, from, x.number)
		}
		m.fail(c, me)
		return c, nil
	}
	r.got |= 1 << from
	if !x.end {
		r.wrong = r.wrong || x.call != r.made || x.stale || r.stale
		r.dirty = m.inPlace
	}
	return c, nil
}

// alone ends the recovery of a rank when another one has made all its calls.
func (m *model) alone(s *modelState, me int) (next []*modelState, err error) {
	for p := range s.ranks {
		if r := &s.ranks[p]; !r.idle || int(r.made) < m.calls {
			continue
		}
		c := s.clone()
		r := &c.ranks[me]
		r.lost = true
		return []*modelState{c}, m.end(c, me, r.at != settling)
	}
	return nil, nil
}

// reform lets all ranks recover together. If another link is lost at the same time, only a
// subset of them learns the standings of all.
func (m *model) reform(s *modelState) (next []*modelState, err error) {
	all := make([]standing, m.ranks)
	for p := range s.ranks {
		r := &s.ranks[p]
		if !r.recovering {
			return nil, nil
		}
		all[p] = standing{call: r.call, at: r.at, again: verdictOn(fabric.ErrLink, r.at, !m.inPlace), tries: r.tries}
	}
	whole := 1<<m.ranks - 1
	for heard := 1; heard <= whole; heard++ {
		if heard != whole && s.cuts == m.cuts {
			continue
		}
		c := s.clone()
		if heard != whole {
			c.cuts++
		}
		c.aligned = heard == whole
		clear(c.down)
		clear(c.links)
		for p := range c.ranks {
			if heard>>p&1 == 0 {
				m.isolate(c, p)
				continue
			}
			if err = m.follow(c, p, rule(all, plan.Rank(p), m.retries), all); err != nil {
				return nil, err
			}
		}
		next = append(next, c)
	}
	return next, nil
}

// follow applies a ruling to a rank.
func (m *model) follow(s *modelState, me int, ruled ruling, all []standing) error {
	r := &s.ranks[me]
	r.recovering, r.lost = false, false
	r.apply(ruled)
	switch ruled.outcome {
	case repeats:
		tries := uint16(0)
		for _, x := range all {
			if x.call == r.call {
				tries = max(tries, x.tries)
			}
		}
		*r = modelRank{tally: r.tally, made: r.made, at: comparing, tries: tries, stale: r.stale || r.dirty}
		return nil
	case succeeds:
		return m.end(s, me, false)
	case fails:
	}
	return m.end(s, me, true)
}

// next returns all states that can follow one.
func (m *model) next(s *modelState) (next []*modelState, err error) {
	for r := range s.ranks {
		more, serr := m.step(s, r)
		if serr != nil {
			return nil, serr
		}
		next = append(next, more...)
	}
	more, err := m.reform(s)
	next = append(next, more...)
	if s.cuts == m.cuts {
		return next, err
	}
	for a := range m.ranks {
		for b := range a {
			if !s.down[a*m.ranks+b] {
				c := s.clone()
				c.cuts++
				c.aligned = false
				m.cut(c, a, b)
				next = append(next, c)
			}
		}
	}
	return next, err
}

// explore visits every reachable state, and returns their number, up to symmetry.
func (m *model) explore() (int, error) {
	first := &modelState{
		ranks: make([]modelRank, m.ranks), links: make([][]modelMessage, m.ranks*m.ranks), down: make([]bool, m.ranks*m.ranks), aligned: true,
	}
	for r := range first.ranks {
		first.ranks[r].idle = true
	}
	visited := &stateSet{symmetries: m.symmetries(), seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	visited.add(first)
	for queue := []*modelState{first}; len(queue) > 0; {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		next, err := m.next(s)
		if err != nil {
			return len(visited.seen), fmt.Errorf("%w, from %+v", err, *s)
		}
		ended := 0
		for r := range s.ranks {
			if s.ranks[r].idle && int(s.ranks[r].made) == m.calls {
				ended++
			}
		}
		if len(next) == 0 && ended < m.ranks {
			return len(visited.seen), fmt.Errorf("the ranks wait for ever: %+v", *s)
		}
		for _, c := range next {
			if visited.add(c) {
				queue = append(queue, c)
			}
		}
	}
	return len(visited.seen), nil
}

// The patterns of messages in a call.
func everyEdge(n int) (edges [][2]int) {
	for a := range n {
		for b := range n {
			if a != b {
				edges = append(edges, [2]int{a, b})
			}
		}
	}
	return edges
}

func ringEdges(n int) (edges [][2]int) {
	for a := range n {
		edges = append(edges, [2]int{a, (a + 1) % n})
	}
	return edges
}

func rootEdges(n int) (edges [][2]int) {
	for b := 1; b < n; b++ {
		edges = append(edges, [2]int{0, b})
	}
	return edges
}

// TestModel tries every order of events in small groups: whatever link is lost, in whatever
// state of the ranks, no call returns nil with data of another call, no rank waits for
// ever, and ranks that have recovered together stay in the same calls.
func TestModel(t *testing.T) {
	kit.Check(t)
	for _, x := range []struct {
		name  string
		edges func(int) [][2]int
		model model
		// settled is the number of calls where they settle, which multiplies the states;
		// 0 leaves that out.
		settled int
		// large: the states are too many unless the test is exhaustive.
		large bool
	}{
		{name: "all", edges: everyEdge, model: model{ranks: 2, calls: 4, cuts: 3, leaves: 2}, settled: 3},
		{name: "all", edges: everyEdge, model: model{ranks: 3, calls: 3, cuts: 1, leaves: 1}, settled: 2},
		{name: "all", edges: everyEdge, model: model{ranks: 4, calls: 2, cuts: 1}, large: true},
		{name: "ring", edges: ringEdges, model: model{ranks: 3, calls: 3, cuts: 2, leaves: 1}, settled: 2},
		{name: "ring", edges: ringEdges, model: model{ranks: 4, calls: 3, cuts: 1, leaves: 1}, large: true},
		{name: "root", edges: rootEdges, model: model{ranks: 3, calls: 3, cuts: 2, leaves: 1}, settled: 2},
		{name: "root", edges: rootEdges, model: model{ranks: 4, calls: 2, cuts: 1, leaves: 1}},
	} {
		for mode := range 4 {
			m := x.model
			m.edges, m.inPlace, m.settle, m.retries = x.edges(m.ranks), mode%2 > 0, mode >= 2, 1
			if m.settle {
				m.calls = x.settled
			}
			if m.calls == 0 || x.large && !kit.Exhaustive() {
				continue
			}
			if kit.Race() && m.ranks > 2 {
				continue // one goroutine explores: the detector only makes it slow
			}
			t.Run(fmt.Sprintf("%s/%d/place=%v/settle=%v", x.name, m.ranks, m.inPlace, m.settle), func(t *testing.T) {
				states, err := m.explore()
				if err != nil {
					t.Error(strings.TrimSpace(err.Error()))
				}
				t.Logf("%d states", states)
			})
		}
	}
}
