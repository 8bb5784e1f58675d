package plan

import (
	"cmp"
	"slices"
	"time"
)

// Link holds the costs of a message between two ranks: Latency, plus its size divided by
// Bandwidth, which is in bytes per second.
type Link struct {
	Latency   time.Duration `json:"latency"`
	Bandwidth float64       `json:"bandwidth"`
}

// Costs holds measurements of a group, made while all its ranks were busy. All ranks must
// choose by the same values. A speed of 0 means that the operation takes no time.
type Costs struct {
	// Inside is for links between ranks of one node, Between for all others.
	Inside  Link `json:"inside"`
	Between Link `json:"between"`
	// Combine is the number of bytes of results that one rank combines per second, and
	// Memory the number of bytes that it copies per second.
	Combine float64 `json:"combine"`
	Memory  float64 `json:"memory"`
}

// Estimate is the predicted time of an algorithm: the sum of its three parts, as if they
// did not overlap. It assumes that links do not slow each other down.
type Estimate struct {
	Algorithm Algorithm     `json:"algorithm"`
	Time      time.Duration `json:"time"`
	// Latency is the cost of messages that wait for each other, Transfer the time for the
	// bytes of the busiest link, and Compute the time for combining and copying.
	Latency  time.Duration `json:"latency"`
	Transfer time.Duration `json:"transfer"`
	Compute  time.Duration `json:"compute"`
}

// Estimates returns the estimate of every algorithm that can do the task, fastest first;
// ties are in the order of Algorithms.
//
// Errors: ErrTask; ErrAlgorithm if no algorithm can do it.
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

// load is the sequential work of an algorithm: rounds of messages and bytes over links,
// bytes of results combined, and bytes copied.
type load struct {
	inside, between  traffic
	combined, copied float64
}

// traffic is the number of rounds of messages, and the bytes of the busiest rank.
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

// at returns the time for some bytes at a speed.
func at(bytes, speed float64) time.Duration {
	if speed <= 0 {
		return 0
	}
	return time.Duration(bytes / speed * float64(time.Second))
}

// work returns the load of a task, which the algorithm must be able to do.
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
	// The copy of a rank's own elements.
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

// flatLoad returns the load of an algorithm that ignores nodes. With n ranks and S bytes,
// scattering or gathering moves (n-1)/n S over the busiest link.
func flatLoad(t *Task, a Algorithm) (tr traffic, combined float64) {
	n, total := float64(t.Ranks), float64(t.Type.Size())*float64(t.Count)
	share := (n - 1) / n * total
	logs := float64(rounds(t.Ranks))
	// phases is the number of times that all shares go around.
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
		// The messages of a phase do not wait for each other, but each costs work.
		return traffic{phases * n / 2, phases * share}, combined
	default:
		return traffic{rounds: logs}, 0
	}
}

// directLoad returns the load of ranks that read each other's memory. A Sync costs as much
// as a Barrier.
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

// layeredLoad returns the load of going inside the nodes, between them, and inside again:
// with m lanes and M nodes 2 (m-1)/m S inside, and 2 (M-1)/M S/m between.
func layeredLoad(t *Task, s *Shape) load {
	nodes := s.nodes(t.Ranks)
	small, large := t.Ranks, 0
	for _, ranks := range nodes {
		small, large = min(small, len(ranks)), max(large, len(ranks))
	}
	total := float64(t.Type.Size()) * float64(t.Count)
	lanes, size, m := float64(small), float64(large), float64(len(nodes))
	// A rank that goes between nodes gets its lane's share from all other ranks of its
	// node.
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
