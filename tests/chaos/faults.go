package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/lab"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// fault is an injected failure that lasts for a while.
type fault struct {
	name string
	// begin starts the fault, and end reverts it.
	begin, end func(ctx context.Context) error
	// lasts is the duration of the fault.
	lasts time.Duration
	// away is the node whose lease may expire during the fault; nil for none.
	away *lab.Node
}

const (
	shortestFault = 300 * time.Millisecond
	// longestStop exceeds the duration of a lease.
	longestStop = 2 * lab.Lease
	longestCalm = 3 * time.Second
)

// disturb injects one fault after another until the context ends. It reverts every fault
// that it has started.
func (r *run) disturb(ctx context.Context, random *rand.Rand) {
	whole := context.WithoutCancel(ctx)
	for r.sleep(ctx, time.Duration(random.Int64N(int64(longestCalm)))) {
		f := r.someFault(random)
		r.mu.Lock()
		r.faults[f.name]++
		r.mu.Unlock()
		fmt.Fprintf(r.out, "%8.3f s  %s%s for %.1f s\n", r.now().Seconds(), f.name, f.where(), f.lasts.Seconds())
		began := r.now()
		err := f.begin(whole)
		if err == nil {
			r.sleep(ctx, f.lasts)
		}
		if err = errors.Join(err, f.end(whole)); err != nil {
			r.violate(judge.Violation{Property: "setup", Text: fmt.Sprintf("%s%s: %v", f.name, f.where(), err)})
		}
		if f.away != nil && r.lab.Etcd != nil {
			r.keys.history.Away(f.away.Name, began, r.now()+returnSlack)
		}
		fmt.Fprintf(r.out, "%8.3f s  over\n", r.now().Seconds())
		for _, n := range r.lab.Nodes {
			if err := n.Runs(); err != nil {
				r.violate(judge.Violation{Property: "daemon", Text: err.Error()})
				return
			}
		}
	}
}

// returnSlack bounds the time after the end of a fault during which a node may still be
// considered absent.
const returnSlack = 30 * time.Second

func (f *fault) where() string {
	if f.away == nil {
		return ""
	}
	return " " + f.away.Name
}

// sleep waits for d. It returns false if the context ends first.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// someFault chooses a random fault.
func (r *run) someFault(random *rand.Rand) *fault {
	i := random.IntN(len(r.lab.Nodes))
	n, other := r.lab.Nodes[i], r.lab.Nodes[(i+1+random.IntN(2))%len(r.lab.Nodes)]
	lasts := shortestFault + time.Duration(random.Int64N(int64(longestStop-shortestFault)))
	short := min(lasts, time.Second)
	choices := []func() *fault{
		func() *fault { return kill(n, short) },
		func() *fault { return stop(n, short) },
		func() *fault { return stop(n, longestStop) },
		func() *fault { return linkDown(n, lasts) },
		func() *fault { return r.isolate(n, lasts) },
		func() *fault { return r.cut(n, other, lasts, false) },
		func() *fault { return r.cut(n, other, lasts, true) },
		func() *fault { return r.impair(n, lasts, random) },
	}
	if r.lab.Etcd != nil {
		choices = append(choices,
			func() *fault { return r.killLeader(lasts) },
			func() *fault { return r.wipeMember(random.IntN(len(r.lab.Members))) },
			func() *fault { return r.cutFromEtcd(n, lasts) },
		)
	}
	return choices[random.IntN(len(choices))]()
}

func kill(n *lab.Node, lasts time.Duration) *fault {
	return &fault{
		name: "kill -9", lasts: lasts, away: n,
		begin: func(context.Context) error { n.Kill(); return nil },
		end:   n.Start,
	}
}

func stop(n *lab.Node, lasts time.Duration) *fault {
	return &fault{
		name: "SIGSTOP", lasts: lasts, away: n,
		begin: func(context.Context) error { return n.Pause(true) },
		end:   func(context.Context) error { return n.Pause(false) },
	}
}

func linkDown(n *lab.Node, lasts time.Duration) *fault {
	return &fault{name: "link down", lasts: lasts, away: n, begin: n.Space.Pull, end: n.Space.Plug}
}

// lost returns the impairment that drops every frame.
func lost() netns.Impairment { return netns.Impairment{Loss: 1} }

// ways sets the impairment between a space and each of the others, in both directions.
func (r *run) ways(s *netns.Space, others []*netns.Space, i netns.Impairment) {
	for _, other := range others {
		if other != s {
			r.lab.Net.Impair(s, other, i)
			r.lab.Net.Impair(other, s, i)
		}
	}
}

// between returns a fault that impairs the links between a node and the others.
func (r *run) between(name string, n *lab.Node, others []*netns.Space, i netns.Impairment, lasts time.Duration) *fault {
	return &fault{
		name: name, lasts: lasts, away: n,
		begin: func(context.Context) error { r.ways(n.Space, others, i); return nil },
		end:   func(context.Context) error { r.ways(n.Space, others, netns.Impairment{}); return nil },
	}
}

// isolate returns a fault that drops all frames from and to a node while its link stays up.
func (r *run) isolate(n *lab.Node, lasts time.Duration) *fault {
	return r.between("isolated", n, r.lab.Net.Spaces, lost(), lasts)
}

func (r *run) cutFromEtcd(n *lab.Node, lasts time.Duration) *fault {
	return r.between("cut from etcd", n, r.lab.Members, lost(), lasts)
}

// impair returns a fault that drops some of the frames from and to a node and delays the
// others.
func (r *run) impair(n *lab.Node, lasts time.Duration, random *rand.Rand) *fault {
	i := netns.Impairment{
		Loss:  0.01 + 0.2*random.Float64(),
		Delay: time.Duration(random.Int64N(int64(100 * time.Millisecond))), Jitter: time.Duration(1 + random.Int64N(int64(50*time.Millisecond))),
	}
	return r.between("loss and delay", n, r.lab.Net.Spaces, i, lasts)
}

// cut returns a fault that drops the frames from one node to another and, unless oneWay is
// set, those in the other direction.
func (r *run) cut(n, other *lab.Node, lasts time.Duration, oneWay bool) *fault {
	f := &fault{name: "cut " + n.Name + " from " + other.Name, lasts: lasts}
	if oneWay {
		f.name = "one way lost " + n.Name + " to " + other.Name
	}
	set := func(i netns.Impairment) {
		r.lab.Net.Impair(n.Space, other.Space, i)
		if !oneWay {
			r.lab.Net.Impair(other.Space, n.Space, i)
		}
	}
	f.begin = func(context.Context) error { set(lost()); return nil }
	f.end = func(context.Context) error { set(netns.Impairment{}); return nil }
	return f
}

// killLeader returns a fault that kills the leader of etcd.
func (r *run) killLeader(lasts time.Duration) *fault {
	f := &fault{name: "etcd leader killed", lasts: lasts}
	var end func(context.Context) error
	f.begin = func(ctx context.Context) error {
		leader := r.lab.Etcd.Leader(ctx)
		if leader == nil {
			return nil // an election is in progress
		}
		leader.Stop()
		end = leader.Continue
		return nil
	}
	f.end = func(ctx context.Context) error {
		if end == nil {
			return nil
		}
		return end(ctx)
	}
	return f
}

// wipeMember returns a fault that deletes the data of an etcd member, which then joins
// again.
func (r *run) wipeMember(i int) *fault {
	return &fault{
		name:  "etcd member wiped",
		begin: func(ctx context.Context) error { return r.lab.Etcd.Rejoin(ctx, r.lab.Etcd.Servers[i]) },
		end:   func(context.Context) error { return nil },
	}
}
