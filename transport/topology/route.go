package topology

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Hop is one link of a route.
type Hop struct {
	To   ID   `json:"to"`
	Link Link `json:"link"`
}

// Route is the way that a transfer takes.
type Route struct {
	From ID            `json:"from"`
	Hops []Hop         `json:"hops"`
	Size uint64        `json:"size"`
	Time time.Duration `json:"-"`
	// Seconds is Time, exactly.
	Seconds float64 `json:"seconds"`
}

// String is the way: "cuda0 → cuda1 → cuda2".
func (r *Route) String() string {
	var b strings.Builder
	b.WriteString(string(r.From))
	for _, h := range r.Hops {
		b.WriteString(" → " + string(h.To))
	}
	return b.String()
}

// Slowest is the slowest class of the way; OnChip for a way to the device
// itself.
func (r *Route) Slowest() Class {
	worst := 0
	for _, h := range r.Hops {
		worst = max(worst, slices.Index(Classes(), h.Link.Class))
	}
	return Classes()[worst]
}

// Route finds the fastest way for size bytes.
//
// Errors: ErrUnknown, ErrNoRoute.
func (g *Graph) Route(from, to ID, size uint64) (*Route, error) {
	a, err := g.find(from)
	if err != nil {
		return nil, err
	}
	b, err := g.find(to)
	if err != nil {
		return nil, err
	}
	s := g.newSearch(a, size)
	end := s.until(b)
	if end == nil {
		return nil, fmt.Errorf("%w: %s and %s", ErrNoRoute, from, to)
	}
	r := &Route{From: from, Size: size, Seconds: end.seconds, Time: time.Duration(math.Round(end.seconds * 1e9))}
	for l := end; l.before != nil; l = l.before {
		r.Hops = append(r.Hops, Hop{To: g.Devices[l.at].ID, Link: g.Links[l.link]})
	}
	slices.Reverse(r.Hops)
	return r, nil
}

// label is a way to a device, whose last stretch is as fast as bottleneck.
type label struct {
	at      int
	link    int
	before  *label
	seconds float64
	links   int
	// bottleneck is the least bandwidth since the last device that stores;
	// infinite right behind one.
	bottleneck float64
}

// before orders labels: by time, then by the number of links, then by names, so
// that every rank finds the same way.
func (l *label) less(o *label) bool {
	if !same(l.seconds, o.seconds) {
		return l.seconds < o.seconds
	}
	if l.links != o.links {
		return l.links < o.links
	}
	if l.at != o.at {
		return l.at < o.at
	}
	return l.bottleneck > o.bottleneck
}

// same says that two times differ by nothing but rounding.
func same(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(a, b) }

// labels is a heap.
type labels []*label

func (h labels) Len() int           { return len(h) }
func (h labels) Less(i, j int) bool { return h[i].less(h[j]) }
func (h labels) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is heap's.
func (h *labels) Push(x any) {
	if l, is := x.(*label); is {
		*h = append(*h, l)
	}
}

// Pop is heap's.
func (h *labels) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// search goes through ways from one device, the fastest first. Of two ways to
// one device the slower one may be the better beginning of a longer way: where
// its last stretch is wider, or narrower, so that a narrow link behind it costs
// less than it costs the other.
type search struct {
	g    *Graph
	size float64
	open labels
	// done has the settled ways to each device.
	done [][]*label
}

// beats says that no way that goes on from o is faster than the same one from
// l.
func (s *search) beats(l, o *label) bool {
	return l.bottleneck >= o.bottleneck && l.seconds-s.size/l.bottleneck <= o.seconds-s.size/o.bottleneck
}

func (g *Graph) newSearch(from int, size uint64) *search {
	s := &search{g: g, size: float64(size), done: make([][]*label, len(g.Devices))}
	s.open = labels{{at: from, bottleneck: math.Inf(1)}}
	return s
}

// next settles one more way; nil is none.
func (s *search) next() *label {
	for s.open.Len() > 0 {
		l, is := heap.Pop(&s.open).(*label)
		if !is || slices.ContainsFunc(s.done[l.at], func(o *label) bool { return s.beats(o, l) }) {
			continue
		}
		s.done[l.at] = append(s.done[l.at], l)
		s.extend(l)
		return l
	}
	return nil
}

// until settles ways until one arrives; nil is none.
func (s *search) until(to int) *label {
	for l := s.next(); l != nil; l = s.next() {
		if l.at == to {
			return l
		}
	}
	return nil
}

func (s *search) extend(l *label) {
	for _, i := range s.g.from[l.at] {
		link := &s.g.Links[i]
		other := s.g.index[link.A]
		if other == l.at {
			other = s.g.index[link.B]
		}
		narrow := min(l.bottleneck, link.bytesPerSecond())
		n := &label{at: other, link: i, before: l, links: l.links + 1, bottleneck: narrow}
		n.seconds = l.seconds + link.seconds() + s.size/narrow - s.size/l.bottleneck
		if s.g.Devices[other].Kind.stores() {
			n.bottleneck = math.Inf(1)
		}
		heap.Push(&s.open, n)
	}
}
