package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestGate(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("a new gate is shut")
		}
	}
	if !g.Shut() || g.Shut() {
		t.Error("the first call is not told from the second")
	}
	if g.Enter() {
		t.Error("entered a gate that is shut")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with two inside: %v", err)
	}
	g.Leave()
	g.Leave()
	if err := g.Wait(ended); err != nil {
		t.Errorf("with nobody inside: %v", err)
	}
}

// TestShutAmongMany shuts gates while several goroutines enter and leave: none is
// inside after Wait.
func TestShutAmongMany(t *testing.T) {
	for range 200 {
		var g Gate
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.Enter() {
					inside.Add(1)
					inside.Add(-1)
					g.Leave()
				}
			})
		}
		g.Shut()
		g.Drain()
		if err := g.Wait(t.Context()); err != nil || inside.Load() != 0 {
			t.Fatalf("%d inside: %v", inside.Load(), err)
		}
		all.Wait()
	}
}
