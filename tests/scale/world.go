package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// patience bounds every wait.
const patience = 10 * time.Minute

// atOnce is the number of nodes that act concurrently.
const atOnce = 32

// service is the coordination service that the nodes of a world share.
type service interface {
	// client connects a node to the service.
	client(ctx context.Context) (coord.Service, error)
	// away stops the service, or starts it again. wipe deletes all of its data.
	away(ctx context.Context, away bool) error
	wipe(ctx context.Context) error
	// holds returns the bytes that the service uses in memory and on disk; memory is 0 if
	// it runs in this process.
	holds() (memory, disk uint64)
}

// node is one node, with the product's code for membership and key index.
type node struct {
	service coord.Service
	members *members.Members
	index   *keyindex.Registry
	quiet   func() // removes its event listener
}

// world is a cluster of nodes.
type world struct {
	meter
	service service
	nodes   []*node
	keys    int // of each node
	// awaited is the change that converge waits for.
	awaited atomic.Pointer[awaited]
}

// awaited is a change of one node, and the number of nodes that have yet to see it.
type awaited struct {
	kind members.Kind
	name members.Name
	left atomic.Int64
	seen chan struct{}
}

// name returns the name of a node by its number. Numbers beyond the world's belong to
// newcomers.
func name(i int) members.Name { return members.Name(fmt.Sprintf("node-%04d.rack-%02d", i, i/40)) }

// record returns a record like that of a machine with eight cards.
func record(i int) members.Record {
	r := members.Record{
		Name:      name(i),
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d:7070", 1+i>>16, i>>8&255, i&255), fmt.Sprintf("unix:/run/hmcfs/node-%08x.sock", name(i).Rank())},
		ID:        fmt.Sprintf("%032x", i),
		Devices:   []members.Device{{Name: "host", Model: "pinned host memory", Total: 64 << 30}},
		Version:   "v0.6.0",
	}
	for d := range 8 {
		r.Devices = append(r.Devices, members.Device{Name: fmt.Sprintf("cuda%d", d), Model: "NVIDIA H100 80GB HBM3", Total: 80 << 30})
	}
	return r
}

// key returns the name of a node's key.
func key(i, k int) string { return fmt.Sprintf("model-%04d-layer-%06d", i, k) }

func (w *world) join(ctx context.Context, i int) (_ *node, err error) {
	n := &node{}
	s, err := w.service.client(ctx)
	if err != nil {
		return nil, err
	}
	n.service = s
	seam := &metered{Service: s, m: &w.meter}
	if n.members, err = members.Join(ctx, members.Options{Service: seam, Self: record(i)}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	n.quiet = n.members.OnEvent(w.saw)
	//nolint:contextcheck // The registry lives until it is closed, not as long as the join.
	n.index, err = keyindex.New(keyindex.Options{Service: seam, Self: name(i), Lease: n.members.Lease})
	if err != nil {
		return nil, errors.Join(err, n.leave(ctx))
	}
	return n, nil
}

// leave ends a node properly.
func (n *node) leave(ctx context.Context) error {
	var err error
	if n.index != nil {
		err = n.index.Close()
	}
	n.quiet()
	return errors.Join(err, n.members.Close(ctx), n.service.Close())
}

// saw counts the nodes that have seen the awaited change.
func (w *world) saw(ev members.Event) {
	a := w.awaited.Load()
	if a != nil && a.kind == ev.Kind && a.name == ev.Record.Name && a.left.Add(-1) == 0 {
		close(a.seen)
	}
}

// converge changes one node and waits until the others have seen the change.
func (w *world) converge(ctx context.Context, kind members.Kind, i, others int, do func() error) error {
	a := &awaited{kind: kind, name: name(i), seen: make(chan struct{})}
	a.left.Store(int64(others))
	w.awaited.Store(a)
	if err := do(); err != nil {
		return err
	}
	select {
	case <-a.seen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("%d nodes have not seen it", a.left.Load())
	}
}

// each calls do for each number below n, several at a time.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	_ = measure.AtOnce(min(atOnce, n), func(int) error { // errs has the errors
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			errs[i] = do(i)
		}
		return nil
	})
	return errors.Join(errs...)
}

// until waits until a condition holds for every node.
func (w *world) until(ctx context.Context, holds func(n *node) bool) error {
	i := 0
	err := await(ctx, 2*time.Millisecond, func() (bool, error) {
		for i < len(w.nodes) && holds(w.nodes[i]) {
			i++
		}
		return i == len(w.nodes), nil
	})
	if err != nil {
		err = fmt.Errorf("node %d: %w", i, err)
	}
	return err
}

// await waits until something is done, and looks from time to time.
func await(ctx context.Context, pause time.Duration, done func() (bool, error)) error {
	for late := time.Now().Add(patience); ; {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("not so after %v", patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// close ends the remaining nodes, without leaving properly.
func (w *world) close(ctx context.Context) {
	_ = each(len(w.nodes), func(i int) error {
		n := w.nodes[i]
		if n == nil {
			return nil
		}
		_ = n.service.Close()
		n.quiet()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = n.index.Close()
		_ = n.members.Close(ended)
		return nil
	})
}

// heap returns the memory that this process uses now, in bytes, including stacks.
func heap() uint64 {
	var ms runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&ms)
	return ms.HeapAlloc + ms.StackInuse
}
