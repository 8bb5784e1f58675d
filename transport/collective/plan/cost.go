package plan

import (
	"cmp"
	"slices"
	"time"
)

// Link has the costs of a message between two ranks: Latency, and its bytes
// divided by Bandwidth, in bytes per second.
type Link struct {
	Latency   time.Duration `json:"latency"`
	Bandwidth float64       `json:"bandwidth"`
}

// Costs has the measurements of a group, while all its ranks were busy. Every
// rank has to choose by the same. A speed of 0 costs no time.
type Costs struct {
	// Inside is the links between ranks of one node, Between the others.
	Inside  Link `json:"inside"`
	Between Link `json:"between"`
	// Combine is the number of bytes of results that one rank combines in a second, and
	// Memory how many it copies.
	Combine float64 `json:"combine"`
	Memory  float64 `json:"memory"`
}

// Estimate is the predicted time of an algorithm: the sum of its three parts, as if
// none of them went on during another one. No link slows another one down.
type Estimate struct {
	Algorithm Algorithm     `json:"algorithm"`
	Time      time.Duration `json:"time"`
	// Latency is the cost of the messages that wait for each other, Transfer what
	// the bytes of the busiest link take, and Compute combining and copying.
	Latency  time.Duration `json:"latency"`
	Transfer time.Duration `json:"transfer"`
	Compute  time.Duration `json:"compute"`
}

// Estimates returns what every algorithm that can do the task would take, the
// fastest first; of equal ones, that which comes first in Algorithms.
//
// Errors: ErrTask; ErrAlgorithm where there is none.
func Estimates(t Task, s Shape, c Costs) ([]Estimate, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := s.check(t.Ranks); err != nil {
		return nil, err
	}
	var all []Estimate
	var none error
	for _, a := range Algorithms() {
		if err := can(&t, &s, a); err != nil {
			none = err
			continue
		}
		all = append(all, c.estimate(a, work(&t, &s, a)))
	}
	if len(all) == 0 {
		return nil, none
	}
	slices.SortStableFunc(all, func(a, b Estimate) int { return cmp.Compare(a.Time, b.Time) })
	return all, nil
}

// load has what an algorithm does one thing after the other: rounds of messages
// and bytes over links, bytes of results combined, and bytes copied.
type load struct {
	inside, between  traffic
	combined, copied float64
}

// traffic is rounds of messages, and the bytes of the busiest rank.
type traffic struct{ rounds, bytes float64 }

func (c *Costs) estimate(a Algorithm, w load) Estimate {
	e := Estimate{
		Algorithm: a,
		Latency: time.Duration(w.inside.rounds*float64(c.Inside.Latency) +
			w.between.rounds*float64(c.Between.Latency)),
		Transfer: at(w.inside.bytes, c.Inside.Bandwidth) + at(w.between.bytes, c.Between.Bandwidth),
		Compute:  at(w.combined, c.Combine) + at(w.copied, c.Memory),
	}
	e.Time = e.Latency + e.Transfer + e.Compute
	return e
}

// at returns the time for bytes at a speed.
func at(bytes, speed float64) time.Duration {
	if speed <= 0 {
		return 0
	}
	return time.Duration(bytes / speed * float64(time.Second))
}

// work is the load of a task that the algorithm can do.
func work(t *Task, s *Shape, a Algorithm) load {
	w := load{}
	if t.Ranks > 1 && (t.Count > 0 || t.Kind == Barrier) {
		switch a {
		case Direct:
			w = directLoad(t)
		case Hierarchical:
			w = layeredLoad(t, s)
		default:
			tr, combined := flatLoad(t, a)
			w.combined = combined
			if len(s.nodes(t.Ranks)) > 1 {
				w.between = tr
			} else {
				w.inside = tr
			}
		}
	}
	// What a rank gives to itself.
	if own := float64(t.Type.Size()) * float64(t.Count); !t.InPlace {
		switch {
		case t.Kind == AllGather, t.Kind == AllToAll:
			w.copied += own / float64(t.Ranks)
		case t.Kind == Broadcast, t.Ranks == 1:
			w.copied += own
		}
	}
	return w
}

// flatLoad is the load of an algorithm that knows no nodes. With n ranks and S
// bytes, scattering or gathering moves (n-1)/n S over the busiest link.
func flatLoad(t *Task, a Algorithm) (tr traffic, combined float64) {
	n, total := float64(t.Ranks), float64(t.Type.Size())*float64(t.Count)
	share := (n - 1) / n * total
	logs := float64(rounds(t.Ranks))
	// phases is the number of times that shares go around.
	phases := 1.0
	if t.Kind == AllReduce || t.Kind == Reduce {
		phases = 2
	}
	if t.Kind.Combines() {
		combined = share
	}
	switch a {
	case Ring:
		return traffic{phases * (n - 1), phases * share}, combined
	case NHR:
		return traffic{phases * logs, phases * share}, combined
	case Doubling:
		extra := 0.0
		if t.Ranks&(t.Ranks-1) != 0 {
			logs, extra = logs-1, 1
		}
		return traffic{logs + 2*extra, (logs + 2*extra) * total}, (logs + extra) * total
	case Binomial:
		if t.Kind.Combines() {
			combined = logs * total
		}
		if t.Kind == AllReduce {
			logs *= 2
		}
		return traffic{logs, logs * total}, combined
	case Chain:
		b := builder{task: t}
		hops, k := n-1, float64(b.pieces())
		if t.Kind == AllReduce {
			hops *= 2
		}
		if t.Kind.Combines() {
			combined = total
		}
		return traffic{hops + k - 1, (hops + k - 1) / k * total}, combined
	case Pairwise, Ordered:
		if t.Kind == Broadcast {
			phases, share = 2, total/2
		}
		// The messages of a phase do not wait for each other, but cost work.
		return traffic{phases * n / 2, phases * share}, combined
	default:
		return traffic{rounds: logs}, 0
	}
}

// directLoad is that of ranks which read each other's memory. A Sync costs as
// much as a Barrier.
func directLoad(t *Task) load {
	n, total := float64(t.Ranks), float64(t.Type.Size())*float64(t.Count)
	sync := float64(rounds(t.Ranks))
	share := (n - 1) / n * total
	w := load{inside: traffic{rounds: 2 * sync}}
	switch t.Kind {
	case AllReduce:
		w.combined, w.copied = share, share
	case ReduceScatter, Reduce:
		w.combined = share
	case AllGather, AllToAll:
		w.copied = share
	case Broadcast:
		if t.InPlace {
			w.copied = total
		}
	case Barrier:
		w.inside.rounds = sync
	}
	return w
}

// layeredLoad is that of going inside the nodes, between them, and inside again:
// with m lanes and M nodes 2 (m-1)/m S inside, and 2 (M-1)/M S/m between.
func layeredLoad(t *Task, s *Shape) load {
	nodes := s.nodes(t.Ranks)
	small, large := t.Ranks, 0
	for _, ranks := range nodes {
		small, large = min(small, len(ranks)), max(large, len(ranks))
	}
	total := float64(t.Type.Size()) * float64(t.Count)
	lanes, size, m := float64(small), float64(large), float64(len(nodes))
	// Who goes between gets its lane's share from all others of its node.
	in, out := (size-1)/lanes*total, (m-1)/m*total/lanes
	up, across := float64(rounds(large)), float64(rounds(len(nodes)))
	w := load{}
	switch t.Kind {
	case AllReduce:
		w.inside, w.between = traffic{size, 2 * in}, traffic{2 * across, 2 * out}
		w.combined = in + out
	case ReduceScatter, AllGather:
		w.inside, w.between = traffic{size / 2, in}, traffic{across, out}
		if t.Kind == ReduceScatter {
			w.combined = in + out
		}
	case Broadcast, Reduce:
		w.inside, w.between = traffic{up, up * total}, traffic{across, across * total}
		if t.Kind == Reduce {
			w.combined = (up + across) * total
		}
	case Barrier:
		w.inside, w.between = traffic{rounds: 2 * up}, traffic{rounds: across}
	case AllToAll:
	}
	return w
}
