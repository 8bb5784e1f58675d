package filecollect

import (
	"context"
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// RunRanks is Run on one node with an algorithm of package collective: each file is a rank of
// a group of goroutines. Without Task.Algorithm, or with plan.Direct, it is Run, which gives
// the same result with less waiting; or, if all files are on a device that supports it, the
// device combines them in its memory. order and topology are those of collective.Options.
func (j *Job) RunRanks(ctx context.Context, table *region.Table, order []plan.Rank, topology string) (Report, error) {
	if j.task.Algorithm == "" || j.task.Algorithm == plan.Direct {
		if done, err := j.runOnDevice(ctx); done {
			return OneDevice(), err
		}
		return OneNode(), j.Run(ctx, nil)
	}
	if len(j.files) != j.task.Ranks {
		return Report{}, j.Run(ctx, nil) // reports what is missing
	}
	fabrics, err := fabric.Local(j.task.Ranks)
	if err != nil {
		return Report{}, err
	}
	of := make([]int, len(fabrics))
	for rank := range of {
		of[rank] = rank
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var recorder Recorder
	errs := make([]error, len(fabrics))
	var all sync.WaitGroup
	for rank, f := range fabrics {
		all.Go(func() {
			failure := Contained(func() error {
				o := collective.Options{Algorithm: j.task.Algorithm, Strict: j.task.Strict, Order: order, Topology: topology}
				if rank == 0 {
					o.Observe = recorder.Observe
				}
				g, gerr := collective.New(ctx, f, o)
				if gerr != nil {
					return gerr
				}
				return Run(ctx, j.task, j.filesOf(rank), &Nodes{Group: g, Table: table, Of: of})
			})
			if errs[rank] = failure; failure != nil {
				cancel(failure)
			}
		})
	}
	all.Wait()
	if err = context.Cause(ctx); err != nil {
		// The errors of the others are only consequences of it.
		errs = []error{err}
	}
	for _, f := range fabrics {
		errs = append(errs, f.Close())
	}
	return recorder.Report(), errors.Join(errs...)
}

// filesOf returns the files of one rank.
func (j *Job) filesOf(rank int) []File {
	for i := range j.files {
		if j.files[i].Rank == rank {
			return j.files[i : i+1]
		}
	}
	return nil
}
