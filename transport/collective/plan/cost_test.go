package plan

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
)

func costs() Costs {
	return Costs{
		Inside:  Link{2 * time.Microsecond, 8e9},
		Between: Link{20 * time.Microsecond, 3e9},
		Combine: 10e9, Memory: 12e9,
	}
}

func estimate(t *testing.T, task Task, s Shape, a Algorithm) Estimate {
	t.Helper()
	all, err := Estimates(task, s, costs())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(e Estimate) bool { return e.Algorithm == a })
	if i < 0 {
		t.Fatalf("%s is not among %v", a, all)
	}
	return all[i]
}

func near(t *testing.T, what string, have time.Duration, want float64) {
	t.Helper()
	if math.Abs(have.Seconds()-want) > 1e-9+want*1e-6 {
		t.Errorf("%s: %v, not %v s", what, have, want)
	}
}

func allReduce(n int, bytes uint64) Task {
	return Task{Kind: AllReduce, Ranks: n, Count: bytes / 4, Type: elem.Float32, Op: elem.Sum, InPlace: true}
}

// TestBounds compares estimates with bounds from the literature.
func TestBounds(t *testing.T) {
	t.Parallel()
	const alpha, beta, gamma, size = 2e-6, 1 / 8e9, 1 / 10e9, 64 << 20
	for _, n := range []float64{2, 3, 4, 8, 13, 16, 64} {
		task := allReduce(int(n), size)
		logs := math.Ceil(math.Log2(n))
		f := (n - 1) / n
		near(t, "ring", estimate(t, task, Shape{}, Ring).Time, 2*(n-1)*alpha+2*f*size*beta+f*size*gamma)
		near(t, "nhr", estimate(t, task, Shape{}, NHR).Time, 2*logs*alpha+2*f*size*beta+f*size*gamma)
		task = Task{Kind: Broadcast, Ranks: int(n), Count: size / 4, Type: elem.Float32, InPlace: true}
		near(t, "binomial", estimate(t, task, Shape{}, Binomial).Time, logs*(alpha+size*beta))
		k := 128.0
		near(t, "chain", estimate(t, task, Shape{}, Chain).Time, (n-2+k)*(alpha+size/k*beta))
		near(t, "dissemination", estimate(t, Task{Kind: Barrier, Ranks: int(n)}, Shape{}, Dissemination).Time, logs*alpha)
	}
	for _, n := range []float64{2, 4, 8, 64} {
		near(t, "doubling", estimate(t, allReduce(int(n), size), Shape{}, Doubling).Time,
			math.Log2(n)*(alpha+size*beta+size*gamma))
	}
	// Four ranks on each of two nodes.
	e := estimate(t, allReduce(8, size), Shape{Nodes: []int{0, 0, 0, 0, 1, 1, 1, 1}}, Hierarchical)
	near(t, "hierarchical", e.Transfer, 2*3.0/4*size*beta+2*1.0/2*size/4/3e9)
}

// TestSwitch: recursive doubling until alpha (2(N-1) - log2 N) is less than the
// bytes that the ring saves, then the ring.
func TestSwitch(t *testing.T) {
	t.Parallel()
	c := costs()
	c.Combine = 0
	for n, times := range map[int]float64{4: 8.0, 8: 8.8} {
		bytes := times * c.Inside.Latency.Seconds() * c.Inside.Bandwidth
		for _, x := range []struct {
			factor float64
			want   Algorithm
		}{{0.9, Doubling}, {1.1, Ring}} {
			all, err := Estimates(allReduce(n, uint64(bytes*x.factor)/4*4), Shape{}, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				if e.Algorithm == Ring || e.Algorithm == Doubling {
					if e.Algorithm != x.want {
						t.Errorf("N=%d, %.0f bytes: %s is faster, not %s", n, bytes*x.factor, e.Algorithm, x.want)
					}
					break
				}
			}
		}
	}
}

// TestEstimates: sorted, ties by order, only what can do the task.
func TestEstimates(t *testing.T) {
	t.Parallel()
	all, err := Estimates(allReduce(4, 1<<20), Shape{Mapped: true}, Costs{})
	if err != nil {
		t.Fatal(err)
	}
	var names []Algorithm
	for _, e := range all {
		names = append(names, e.Algorithm)
	}
	want := []Algorithm{Ring, NHR, Doubling, Binomial, Chain, Pairwise, Direct, Ordered}
	if !slices.Equal(names, want) {
		t.Errorf("without costs the order is %v, not %v", names, want)
	}
	task := allReduce(4, 1<<20)
	task.Strict = true
	all, err = Estimates(task, Shape{}, costs())
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if e.Algorithm != Ordered && e.Algorithm != Chain || i > 0 && all[i-1].Time > e.Time {
			t.Errorf("strict: %v", all)
		}
	}
	if _, err := Estimates(Task{Kind: AllReduce}, Shape{}, costs()); !errors.Is(err, ErrTask) {
		t.Errorf("no ranks: %v", err)
	}
}
