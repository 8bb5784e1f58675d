package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
)

// collectives records the collectives, which are checked after all faults have ended.
type collectives struct {
	judged int

	mu sync.Mutex
	// +checklocks:mu
	all []collective
}

// collective is one all-reduce and its outcome.
type collective struct {
	name    string
	outcome judge.Outcome
	// files holds the path of each rank's file on the node that owns it.
	files  []string
	before [][]byte
}

// collectiveStep runs an all-reduce over one file of each node.
func (r *run) collectiveStep(ctx context.Context, w *hand) {
	id := r.number()
	one := collective{name: fmt.Sprintf("all-reduce %d", id)}
	asks := r.lab.Nodes[w.random.IntN(len(r.lab.Nodes))]
	count := 1000 + w.random.IntN(200_000)
	args := []string{"allreduce", "--dtype", "i32"}
	for rank, n := range r.lab.Nodes {
		path := n.Path("host", fmt.Sprintf("reduce%d", id))
		content := judge.Numbers(uint64(id)<<8+uint64(rank), count)
		var err error
		if !r.within("write to reduce", path, func() error { err = os.WriteFile(path, content, 0o644); return err }) || err != nil {
			return
		}
		one.files, one.before = append(one.files, path), append(one.before, content)
		args = append(args, asks.At(n, "host", fmt.Sprintf("reduce%d", id)))
	}
	began := r.now()
	err := r.finish(asks.Command(ctx, args...))
	if err == nil {
		one.outcome = judge.Done
	} else {
		one.name += " (" + err.Error() + ")"
	}
	r.did("allreduce", asks.Name+" "+strings.Join(args, " "), began, 2*opBound, err)
	r.collectives.mu.Lock()
	defer r.collectives.mu.Unlock()
	r.collectives.all = append(r.collectives.all, one)
}

// judgeCollectives checks the files of all collectives.
func (r *run) judgeCollectives() {
	r.collectives.mu.Lock()
	defer r.collectives.mu.Unlock()
	for _, one := range r.collectives.all {
		var after [][]byte
		for _, path := range one.files {
			content, err := os.ReadFile(path)
			if err != nil {
				r.violate(judge.Violation{Property: "lost file", Text: fmt.Sprintf("%s of %s: %v", path, one.name, err)})
			}
			after = append(after, content)
		}
		r.violate(judge.Collective(one.name, one.outcome, one.before, after)...)
		r.collectives.judged++
	}
}
