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

// Route is the route of a transfer.
type Route struct {
	From ID            `json:"from"`
	Hops []Hop         `json:"hops"`
	Size uint64        `json:"size"`
	Time time.Duration `json:"-"`
	// Seconds is Time, without rounding.
	Seconds float64 `json:"seconds"`
}

// String returns the route: "cuda0 → cuda1 → cuda2".
func (r *Route) String() string {
	var b strings.Builder
	b.WriteString(string(r.From))
	for _, h := range r.Hops {
		b.WriteString(" → " + string(h.To))
	}
	return b.String()
}

// Route finds the fastest route for size bytes.
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

// label is a route to a device, whose last stretch is as fast as bottleneck.
type label struct {
	at      int
	link    int
	before  *label
	seconds float64
	links   int
	// bottleneck is the smallest bandwidth since the last device that stores;
	// infinite directly after one.
	bottleneck float64
}

// less orders labels: by time, then by the number of links, then by device, so
// that every rank finds the same route.
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

// same reports whether two times differ only by rounding.
func same(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(a, b) }

// labels is a heap of labels.
type labels []*label

func (h labels) Len() int           { return len(h) }
func (h labels) Less(i, j int) bool { return h[i].less(h[j]) }
func (h labels) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *labels) Push(x any) {
	if l, is := x.(*label); is {
		*h = append(*h, l)
	}
}

// Pop implements heap.Interface.
func (h *labels) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// search enumerates routes from one device, the fastest first. Of two routes to
// one device the slower one may be the better start of a longer route: if the
// bottleneck of its last stretch differs, so that a narrow link after it adds
// less time than it adds to the other.
type search struct {
	g    *Graph
	size float64
	open labels
	// done holds the settled routes to each device.
	done [][]*label
}

// beats reports whether no continuation of o is faster than the same continuation
// of l.
func (s *search) beats(l, o *label) bool {
	return l.bottleneck >= o.bottleneck && l.seconds-s.size/l.bottleneck <= o.seconds-s.size/o.bottleneck
}

func (g *Graph) newSearch(from int, size uint64) *search {
	s := &search{g: g, size: float64(size), done: make([][]*label, len(g.Devices))}
	s.open = labels{{at: from, bottleneck: math.Inf(1)}}
	return s
}

// next settles one more route; nil means that there are none.
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

// until settles routes until one reaches a device; nil means that none does.
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
