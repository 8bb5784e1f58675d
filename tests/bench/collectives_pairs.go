package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/region"
)

// half is one of the four ranks of two pairs, which are goroutines here.
type half struct {
	job    *job.Job
	group  *collective.Group
	buffer *region.Buffer
	view   domain.View
}

// pairSize is the size of an all-reduce of a pair, pairCalls the number of calls per
// measurement.
const (
	pairSize  = devices.MiB
	pairCalls = 50
)

// pairRow measures one pair while a rank of another pair sleeps and its peer waits for it.
func (c *collectives) pairRow() row {
	return row{
		name: fmt.Sprintf("all-reduce of %s by tcp, beside a pair that is stalled", short(pairSize)), unit: micros,
		wants: []want{{of: "beside it", against: "alone", bound: 1.1, atMost: true}},
		notes: []string{
			"Two pairs of one job, by TCP, four goroutines: ranks 2 and 3 alone, and while rank 0 waits in an all-reduce for rank 1, in turns.",
		},
		custom: c.stall,
	}
}

// stall measures both in alternation.
func (c *collectives) stall(ctx context.Context, rounds int) (res result, err error) {
	halves := make([]half, 4)
	defer func() {
		for i := range halves {
			err = errors.Join(err, halves[i].close(context.WithoutCancel(ctx)))
		}
	}()
	dir := filepath.Join(c.dir, "pairs")
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return res, err
	}
	if err = measure.AtOnce(len(halves), func(rank int) error { return halves[rank].open(ctx, dir, rank) }); err != nil {
		return res, err
	}
	return together(ctx, 5*rounds, "beside it", "alone", func(ctx context.Context) (float64, float64, error) {
		alone, err := pairTime(ctx, halves[2:])
		if err != nil {
			return 0, 0, err
		}
		over := make(chan error, 1)
		go func() { over <- halves[0].reduce(ctx) }()
		beside, err := pairTime(ctx, halves[2:])
		return beside, alone, errors.Join(err, halves[1].reduce(ctx), <-over)
	})
}

// pairTime returns the median time of a pair's calls, in seconds.
func pairTime(ctx context.Context, pair []half) (float64, error) {
	var took bench.Series
	err := measure.AtOnce(len(pair), func(i int) error {
		for range pairCalls {
			begin := time.Now()
			if err := pair[i].reduce(ctx); err != nil {
				return err
			}
			if i == 0 {
				took = append(took, time.Since(begin).Seconds())
			}
		}
		return nil
	})
	return took.Median(), err
}

// open creates a rank of the job, and of its pair: 0 and 1, 2 and 3.
func (h *half) open(ctx context.Context, dir string, rank int) (err error) {
	if h.job, err = job.Init(ctx, job.Options{Rank: rank, World: 4, Dir: dir, Backend: job.TCP, Timeout: patience}); err != nil {
		return err
	}
	first := rank / 2 * 2
	d, err := h.job.World().Derive(ctx, fmt.Sprint("pair", first), []int{first, first + 1})
	if err != nil {
		return err
	}
	if h.group, err = collective.New(ctx, d.Fabric(), collective.Options{}); err != nil {
		return err
	}
	if h.buffer, err = h.job.Table().Alloc(pairSize); err != nil {
		return err
	}
	h.view, err = domain.All(h.buffer, elem.Float32)
	return err
}

func (h *half) reduce(ctx context.Context) error {
	return h.group.AllReduce(ctx, h.view, h.view, elem.Sum)
}

func (h *half) close(ctx context.Context) error {
	var errs []error
	if h.group != nil {
		errs = append(errs, h.group.Close()) //nolint:contextcheck // the end is not the context's
	}
	if h.buffer != nil {
		errs = append(errs, h.buffer.Close(ctx))
	}
	if h.job != nil {
		errs = append(errs, h.job.Close()) //nolint:contextcheck // as above
	}
	return errors.Join(errs...)
}
