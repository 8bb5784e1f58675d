package opencl

import (
	"context"
	"errors"
	"testing"
)

func TestGateHostKeepsCommandsOut(t *testing.T) {
	var g gate
	a, b := &buffer{}, &buffer{}
	if err := g.enterHost(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if g.tryCommand(a) || g.tryCommand(b, a) {
		t.Error("a command entered under a host user")
	}
	if !g.tryCommand(b, b) || b.use.commands != 1 {
		t.Error("a buffer named twice is not used once")
	}
	g.leaveCommand(b, b)
	g.leaveHost(a)
	if !g.tryCommand(a, b) {
		t.Error("the gate did not open")
	}
}

func TestGateCommandsKeepHostWaiting(t *testing.T) {
	var g gate
	a, b := &buffer{}, &buffer{}
	if !g.tryCommand(a) {
		t.Fatal("refused")
	}
	entered := make(chan error)
	go func() { entered <- g.enterHost(context.Background(), b, a) }()
	// Once the host waits, no further command begins on either buffer.
	for g.tryCommand(b) {
		g.leaveCommand(b)
	}
	if g.tryCommand(a) {
		t.Error("a command passed a waiting host user")
	}
	g.leaveCommand(a)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if a.use.hosts != 1 || b.use.hosts != 1 || a.use.waiting != 0 {
		t.Errorf("a %+v, b %+v", a.use, b.use)
	}
}

func TestGateWaitEndsWithTheContext(t *testing.T) {
	var g gate
	a := &buffer{}
	g.tryCommand(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.enterHost(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if a.use.hosts != 0 || a.use.waiting != 0 {
		t.Errorf("left %+v", a.use)
	}
}

func TestGateRetire(t *testing.T) {
	var g gate
	a, b := &buffer{}, &buffer{}
	if !g.retire(a) || g.retire(a) {
		t.Error("an idle buffer is destroyed once, at once")
	}
	_ = g.enterHost(t.Context(), b)
	_ = g.enterHost(t.Context(), b)
	if g.retire(b) {
		t.Error("destroyed under its users")
	}
	if len(g.leaveHost(b)) != 0 || len(g.leaveHost(b)) != 1 {
		t.Error("the last user destroys")
	}
}
