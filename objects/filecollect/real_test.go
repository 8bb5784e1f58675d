package filecollect

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// runReal is run with real groups, of goroutines.
func (w *world) runReal(t *testing.T, task Task, of []int) error {
	t.Helper()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if failure := engine.Close(); failure != nil {
			t.Error(failure)
		}
	}()
	table := region.NewTable(engine)
	fabrics, err := fabric.Local(len(w.files))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make([]error, len(w.files))
	var all sync.WaitGroup
	for node, files := range w.files {
		all.Go(func() {
			o := collective.Options{Algorithm: task.Algorithm, Strict: task.Strict && Ordered(of)}
			g, err := collective.New(ctx, fabrics[node], o)
			if err == nil {
				err = Run(ctx, task, files, &Nodes{Group: g, Table: table, Of: of})
			}
			if errs[node] = err; err != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, f := range fabrics {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// TestRunByGroups is TestRun with collective.Group.
func TestRunByGroups(t *testing.T) {
	for _, of := range [][]int{{0, 1}, {0, 0, 1, 1}, {0, 1, 1, 2, 0}} {
		for _, kind := range allKinds() {
			for _, count := range []uint64{uint64(len(of)) + 1, 1100003} {
				task := Task{Kind: kind, Type: elem.Int32, Ranks: len(of), Size: 4 * count, Root: len(of) / 2}
				all := variants(task, 4*count)
				for _, one := range all[max(0, len(all)-2):] {
					check(t, one, of, (*world).runReal)
				}
			}
		}
	}
}

// TestRunRanks runs a task with requested algorithms.
func TestRunRanks(t *testing.T) {
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, a := range []plan.Algorithm{"", plan.Ring, plan.Doubling, plan.Direct} {
		task := Task{Kind: plan.AllReduce, Type: elem.Int32, Op: elem.Sum, Ranks: 3, Size: 4 * 1000003, Algorithm: a}
		sources := sourcesOf(task)
		w := newWorld(task, []int{0, 0, 0}, sources)
		j := &Job{task: task, files: w.files[0]}
		report, err := j.RunRanks(t.Context(), region.NewTable(engine), nil, "")
		if err != nil {
			t.Fatalf("%q: %v", a, err)
		}
		if a != "" && report.Algorithm != a {
			t.Errorf("%q: by %q", a, report.Algorithm)
		}
		for r, want := range reference(t, task, sources) {
			if !bytes.Equal(w.out[r].p, want) {
				t.Errorf("%q: rank %d has other bytes than it should", a, r)
			}
		}
	}
}
