package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/lab"
)

// convergence bounds the time that a cluster without faults needs to return to its normal
// state on a busy machine.
const convergence = 60 * time.Second

// settle waits until the cluster has returned to its normal state, and compares everything
// with what was acknowledged.
func (r *run) settle(ctx context.Context) {
	fmt.Fprintf(r.out, "%8.3f s  all faults are over\n", r.now().Seconds())
	began := r.now()
	if err := r.converge(ctx); err != nil && ctx.Err() == nil {
		r.violate(judge.Violation{Property: "convergence", Text: err.Error()})
	}
	fmt.Fprintf(r.out, "%8.3f s  the cluster has converged after %.1f s\n", r.now().Seconds(), (r.now() - began).Seconds())
	if ctx.Err() != nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	r.judgeDoubtful()
	r.drain(ctx)
	r.lastKeys(ctx)
	r.judgeFiles()
	r.judgeCollectives()
	if err := r.until(ctx, r.nothingHidden); err != nil {
		r.violate(judge.Violation{Property: "left behind", Text: err.Error()})
	}
	for _, n := range r.lab.Nodes {
		if err := n.Unmount(ctx); err != nil {
			r.violate(judge.Violation{Property: "unmount", Text: err.Error()})
		}
	}
}

// until calls holds repeatedly until it returns nil or convergence has passed.
func (r *run) until(ctx context.Context, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, convergence)
	defer cancel()
	var last error
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // an error caused by the end of the time says nothing
		}
		if !r.sleep(ctx, 100*time.Millisecond) {
			return last
		}
	}
}

// converge waits until every node is connected to all others and all list the same keys.
func (r *run) converge(ctx context.Context) error {
	return r.until(ctx, func(ctx context.Context) error {
		return errors.Join(r.connected(ctx), r.sameKeys())
	})
}

// connected returns an error if a node is not connected to another one.
func (r *run) connected(ctx context.Context) error {
	for _, n := range r.lab.Nodes {
		for _, other := range r.lab.Nodes {
			if other == n {
				continue
			}
			entries, err := os.ReadDir(n.At(other))
			if err != nil || len(entries) == 0 {
				return fmt.Errorf("node %s sees %d devices of %s: %w", n.Name, len(entries), other.Name, err)
			}
		}
		known, err := n.Cluster(ctx)
		if err != nil {
			return err
		}
		if !known.State.UnreachableSince.IsZero() {
			return fmt.Errorf("node %s: no etcd since %v: %s", n.Name, known.State.UnreachableSince, known.State.Problem)
		}
		for _, other := range known.Nodes {
			if !other.Connected || other.Problem != "" {
				return fmt.Errorf("hmcfs nodes on %s: %s is connected: %t, its problem: %q", n.Name, other.Name, other.Connected, other.Problem)
			}
		}
	}
	return nil
}

// sameKeys returns an error if the key lists of two nodes differ.
func (r *run) sameKeys() error {
	var first []string
	for i, n := range r.lab.Nodes {
		names, err := keysOf(n)
		if err != nil {
			return err
		}
		if i == 0 {
			first = names
		}
		if !slices.Equal(names, first) {
			return fmt.Errorf("node %s lists %d keys, node %s %d; of those that differ the first lists %q, the other %q",
				r.lab.Nodes[0].Name, len(first), n.Name, len(names), without(first, names), without(names, first))
		}
	}
	return nil
}

// without returns the elements of one list that are not in the other.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// keysOf returns the names that a node lists in keys/, each with the object that it refers
// to.
func keysOf(n *lab.Node) ([]string, error) {
	entries, err := os.ReadDir(n.Path("keys"))
	if err != nil {
		return nil, fmt.Errorf("keys of node %s: %w", n.Name, err)
	}
	var names []string
	for _, e := range entries {
		to, err := os.Readlink(n.Path("keys", e.Name()))
		if err != nil {
			return nil, fmt.Errorf("key %s on node %s: %w", e.Name(), n.Name, err)
		}
		to = strings.TrimPrefix(to, "../")
		if !strings.HasPrefix(to, "nodes/") {
			to = "nodes/" + n.Name + "/" + to
		}
		names = append(names, e.Name()+" "+to)
	}
	return names, nil
}

// lastKeys reads every key on every node, so that the history shows whether all agree on
// one register.
func (r *run) lastKeys(ctx context.Context) {
	for i := range r.keys.made() {
		for _, n := range r.lab.Nodes {
			o := judge.KeyOp{Key: keyName(i + 1), Node: n.Name, Call: r.now()}
			r.getKey(ctx, n, &o)
			o.Return = r.now()
			r.keys.history.Add(o)
			if o.Outcome != judge.Done {
				r.violate(judge.Violation{Property: "key can't be read at the end", Text: o.Key + " " + o.String()})
			}
		}
	}
}

// nothingHidden returns an error if an operation of a daemon has left a file behind.
func (r *run) nothingHidden(context.Context) error {
	for _, n := range r.lab.Nodes {
		for _, device := range []string{"host", "sim0"} {
			err := filepath.WalkDir(n.Path(device), func(path string, _ fs.DirEntry, err error) error {
				if err == nil && strings.HasPrefix(filepath.Base(path), ".hmcfs-") {
					err = fmt.Errorf("%s is left", path)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
