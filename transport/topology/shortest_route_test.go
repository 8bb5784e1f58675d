package topology

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// card4 is four cards: 0-1 and 2-3 are linked by fast links, all others by slow
// ones.
func card4(t *testing.T, without ...[2]ID) *Graph {
	t.Helper()
	var devices []Device
	for i := range 4 {
		devices = append(devices, Device{ID: ID(fmt.Sprint(i)), Kind: Accelerator, NUMA: -1})
	}
	var links []Link
	for i := range 4 {
		for j := i + 1; j < 4; j++ {
			l := Link{A: ID(fmt.Sprint(i)), B: ID(fmt.Sprint(j)), Class: PCIe, Bandwidth: 10, Latency: 5}
			if i/2 == j/2 {
				l.Class, l.Bandwidth, l.Latency = Peer, 100, 1
			}
			if !slices.Contains(without, [2]ID{l.A, l.B}) {
				links = append(links, l)
			}
		}
	}
	return made(t, devices, links)
}

func made(t *testing.T, devices []Device, links []Link) *Graph {
	t.Helper()
	g, err := New(devices, links)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func ids(names ...string) []ID {
	out := make([]ID, len(names))
	for i, n := range names {
		out[i] = ID(n)
	}
	return out
}

func TestRingUsesTheFastLinks(t *testing.T) {
	const size = 1 << 20
	order, err := card4(t).Ring(ids("0", "1", "2", "3"), size)
	if err != nil || !slices.Equal(order, []int{0, 1, 2, 3}) && !slices.Equal(order, []int{0, 1, 3, 2}) {
		t.Errorf("ring %v, %v", order, err)
	}
	// The ranks' places may be in any order: 0-2 and 1-3 are the fast ones now.
	order, err = card4(t).Ring(ids("0", "2", "1", "3"), size)
	if err != nil || !adjacent(order, 0, 2) || !adjacent(order, 1, 3) {
		t.Errorf("ring of shuffled places %v, %v", order, err)
	}
	// Without the link 0-1 the two are not neighbours: the route between them is
	// half as fast as the slow links.
	order, err = card4(t, [2]ID{"0", "1"}).Ring(ids("0", "1", "2", "3"), size)
	if err != nil || adjacent(order, 0, 1) {
		t.Errorf("ring without 0-1 is %v, %v", order, err)
	}
}

func adjacent(ring []int, a, b int) bool {
	i, j := slices.Index(ring, a), slices.Index(ring, b)
	d := (i - j + len(ring)) % len(ring)
	return d == 1 || d == len(ring)-1
}

func TestRingOfRanksOnOneDevice(t *testing.T) {
	// Ranks of one device are next to each other.
	order, err := card4(t).Ring(ids("0", "2", "0", "2", "0"), 1<<20)
	if err != nil || len(order) != 5 {
		t.Fatal(order, err)
	}
	changes := 0
	for i := range order {
		if order[i]%2 != order[(i+1)%len(order)]%2 {
			changes++
		}
	}
	if changes != 2 {
		t.Errorf("ring %v changes the device %d times", order, changes)
	}
}

func TestRouteDetoursWhereThatIsCheaper(t *testing.T) {
	// 0 to 2: a slow link, and two fast ones through 1.
	g := made(t, []Device{{ID: "0", Kind: Accelerator}, {ID: "1", Kind: Accelerator}, {ID: "2", Kind: Accelerator}},
		[]Link{
			{A: "0", B: "2", Class: PCIe, Bandwidth: 10, Latency: 5},
			{A: "0", B: "1", Class: Peer, Bandwidth: 100, Latency: 10},
			{A: "1", B: "2", Class: Peer, Bandwidth: 100, Latency: 10},
		})
	// 5 µs + S/10 against 20 µs + S/50: equal at 187.5 KB.
	for size, want := range map[uint64]string{0: "0 → 2", 100_000: "0 → 2", 187_500: "0 → 2", 188_000: "0 → 1 → 2", 1 << 30: "0 → 1 → 2"} {
		r, err := g.Route("0", "2", size)
		if err != nil || r.String() != want {
			t.Errorf("%d bytes go %v, %v; want %s", size, r, err, want)
			continue
		}
		seconds := 5e-6 + float64(size)/10e9
		if len(r.Hops) == 2 {
			seconds = 20e-6 + float64(size)/50e9
		}
		if math.Abs(r.Seconds-seconds) > 1e-12 {
			t.Errorf("%d bytes take %v, want %v", size, r.Seconds, seconds)
		}
	}
}

func TestRouteThroughSwitchesIsOneStretch(t *testing.T) {
	g := made(t, []Device{{ID: "a", Kind: Accelerator}, {ID: "s", Kind: Switch}, {ID: "n", Kind: NUMANode}, {ID: "b", Kind: Accelerator}},
		[]Link{
			{A: "a", B: "s", Class: PCIe, Bandwidth: 25, Latency: 1},
			{A: "s", B: "n", Class: PCIe, Bandwidth: 50, Latency: 1},
			{A: "n", B: "b", Class: PCIe, Bandwidth: 12.5, Latency: 1},
		})
	r, err := g.Route("a", "b", 125_000)
	if want := 3e-6 + 125_000/12.5e9; err != nil || math.Abs(r.Seconds-want) > 1e-12 {
		t.Errorf("%v takes %v, %v; want %v", r, r.Seconds, err, want)
	}
}

// TestRouteAgainstAllPaths compares routes with the best of all simple paths.
func TestRouteAgainstAllPaths(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(5)
		var devices []Device
		for i := range n {
			devices = append(devices, Device{ID: ID(fmt.Sprint(i)), Kind: kinds()[rng.IntN(len(kinds()))]})
		}
		var links []Link
		for i := range n {
			for j := range i {
				if rng.IntN(3) > 0 {
					links = append(links, Link{
						A: ID(fmt.Sprint(i)), B: ID(fmt.Sprint(j)), Class: PCIe,
						Bandwidth: float64(1 + rng.IntN(50)), Latency: float64(1 + rng.IntN(30)),
					})
				}
			}
		}
		g := made(t, devices, links)
		for range 4 {
			from, to, size := ID(fmt.Sprint(rng.IntN(n))), ID(fmt.Sprint(rng.IntN(n))), uint64(rng.IntN(1_000_000))
			want := bestPath(g, to, float64(size), map[ID]bool{}, way{at: from, narrow: math.Inf(1)})
			r, err := g.Route(from, to, size)
			switch {
			case math.IsInf(want, 1):
				if !errors.Is(err, ErrNoRoute) {
					t.Errorf("seed %d, %s to %s: %v, %v; want no route", seed, from, to, r, err)
				}
			case err != nil || math.Abs(r.Seconds-want) > 1e-12:
				t.Errorf("seed %d, %s to %s, %d bytes: %v, %v; want %v", seed, from, to, size, r, err, want)
			}
		}
	}
}

// way is a path so far: its end, its cost and the bottleneck of its last stretch.
type way struct {
	at           ID
	done, narrow float64
}

func bestPath(g *Graph, to ID, size float64, seen map[ID]bool, w way) float64 {
	if w.at == to {
		return w.done + size/w.narrow
	}
	seen[w.at] = true
	defer delete(seen, w.at)
	best := math.Inf(1)
	for _, l := range g.Links {
		other := l.B
		if l.B == w.at {
			other = l.A
		}
		if l.A != w.at && l.B != w.at || seen[other] {
			continue
		}
		n := way{at: other, done: w.done + l.seconds(), narrow: min(w.narrow, l.bytesPerSecond())}
		if v, _ := g.Device(other); v.Kind.stores() {
			n.done, n.narrow = n.done+size/n.narrow, math.Inf(1)
		}
		best = min(best, bestPath(g, to, size, seen, n))
	}
	return best
}

func TestRouteErrors(t *testing.T) {
	g := made(t, []Device{{ID: "a", Kind: Host}, {ID: "b", Kind: Host}}, nil)
	if _, err := g.Route("a", "b", 1); !errors.Is(err, ErrNoRoute) {
		t.Errorf("no link: %v", err)
	}
	if _, err := g.Route("a", "c", 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("no device: %v", err)
	}
	if _, err := g.Ring(ids("a", "b"), 1); !errors.Is(err, ErrNoRoute) {
		t.Errorf("ring without links: %v", err)
	}
	if _, err := g.Ring(ids("a", "x"), 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("ring of unknown: %v", err)
	}
	if _, err := g.Ring(make([]ID, MaxRing+1), 1); !errors.Is(err, ErrFile) {
		t.Errorf("too large a ring: %v", err)
	}
	if order, err := g.Ring(nil, 1); err != nil || len(order) != 0 {
		t.Errorf("ring of nothing: %v, %v", order, err)
	}
	if r, err := g.Route("a", "a", 9); err != nil || len(r.Hops) != 0 || r.Seconds != 0 {
		t.Errorf("to itself: %v, %v", r, err)
	}
}

// TestRingIsTheBest compares rings of up to 8 with all others, and checks that
// larger ones are rings that no reversal improves.
func TestRingIsTheBest(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 4 + rng.IntN(9)
		times := make([][]float64, n)
		for i := range times {
			times[i] = make([]float64, n)
			for j := range i {
				times[i][j] = float64(1 + rng.IntN(6))
				times[j][i] = times[i][j]
			}
		}
		tr := &tour{times: times}
		start := make([]int, n)
		for i := range start {
			start[i] = i
		}
		good := tr.good(n)
		sorted := slices.Sorted(slices.Values(good))
		if !slices.Equal(sorted, start) {
			t.Fatalf("seed %d: %v is no ring", seed, good)
		}
		if n <= exactRing {
			best := tr.best(slices.Clone(start))
			if tr.cost(good).less(tr.cost(best)) {
				t.Errorf("seed %d: %v %v is better than the best, %v %v", seed, good, tr.cost(good), best, tr.cost(best))
			}
		}
	}
}

func TestRingOfManyFindsTheGroups(t *testing.T) {
	// 64 ranks on 8 machines of 8: a ring changes machines 8 times.
	var devices []Device
	var links []Link
	var places []ID
	devices = append(devices, Device{ID: "net", Kind: Switch})
	for m := range 8 {
		hub := ID(fmt.Sprintf("m%d", m))
		devices = append(devices, Device{ID: hub, Kind: Switch})
		links = append(links, Link{A: hub, B: "net", Class: TCP})
		for i := range 8 {
			id := ID(fmt.Sprintf("m%d/gpu%d", m, i))
			devices = append(devices, Device{ID: id, Kind: Accelerator})
			links = append(links, Link{A: id, B: hub, Class: Peer})
			places = append(places, id)
		}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	rng.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	order, err := made(t, devices, links).Ring(places, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	changes := 0
	for i, r := range order {
		if places[r][:2] != places[order[(i+1)%len(order)]][:2] {
			changes++
		}
	}
	if changes != 8 || order[0] != 0 {
		t.Errorf("the ring changes the machine %d times and begins with %d", changes, order[0])
	}
}
