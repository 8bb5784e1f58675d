package job_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/region"
)

// pairRank is a rank in a group of two, with the reports of the group's calls.
type pairRank struct {
	group  *collective.Group
	buffer *region.Buffer
	view   domain.View
	// said holds log messages about stuck calls.
	said    *observer.ObservedLogs
	reports []collective.Report
}

// pairs makes groups of two ranks each in one job, by ranks of the job: 0 and 1, then 2 and
// 3 or 0 and 2.
func pairs(ctx context.Context, j *job.Job, lists [][]int) ([]*pairRank, error) {
	out := make([]*pairRank, len(lists))
	for i, ranks := range lists {
		if j.World().Rank() != ranks[0] && j.World().Rank() != ranks[1] {
			continue
		}
		p := &pairRank{}
		d, err := j.World().Derive(ctx, fmt.Sprint("pair", i), ranks)
		if err != nil {
			return nil, err
		}
		o := collective.Options{Stuck: 10 * time.Millisecond, Observe: func(r *collective.Report) { p.reports = append(p.reports, *r) }}
		core, said := observer.New(zapcore.WarnLevel)
		p.said, o.Logger = said, zap.New(core)
		if p.group, err = collective.New(ctx, d.Fabric(), o); err != nil {
			return nil, err
		}
		if p.buffer, err = j.Table().Alloc(devices.MiB); err != nil {
			return nil, err
		}
		if p.view, err = domain.All(p.buffer, elem.Float32); err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

func (p *pairRank) reduce(ctx context.Context) error {
	return p.group.AllReduce(ctx, p.view, p.view, elem.Max)
}

// TestPairs: a rank of one pair sleeps while the other one waits for it in the middle of a
// call. Another pair, even one that includes the waiting rank, continues unaffected, with
// the same messages and without repeats. Case 26 of the contract.
func TestPairs(t *testing.T) {
	for _, second := range [][]int{{2, 3}, {0, 2}} {
		backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
			const rounds = 20
			all, ctx := start(t, 4, tweak), within(t)
			groups := make([][]*pairRank, 4)
			each(t, 4, func(rank int) (err error) {
				groups[rank], err = pairs(ctx, all[rank], [][]int{{0, 1}, second})
				return err
			})
			calls := func() {
				t.Helper()
				each(t, 2, func(i int) error {
					p := groups[second[i]][1]
					for range rounds {
						if err := p.reduce(ctx); err != nil {
							return err
						}
					}
					return nil
				})
			}
			calls()
			over := make(chan error, 1)
			waits := groups[0][0].said.Len
			before := waits()
			go func() { over <- groups[0][0].reduce(ctx) }()
			kit.Eventually(t, patience, func() bool { return waits() > before || len(over) > 0 })
			calls()
			select {
			case err := <-over:
				t.Errorf("the stalled call is over: %v", err)
			default:
			}
			for i := range 2 {
				sameReports(t, groups[second[i]][1].reports, rounds)
			}
			if err := errors.Join(groups[1][0].reduce(ctx), <-over); err != nil {
				t.Error(err)
			}
			for _, mine := range groups {
				closePairs(t, mine)
			}
		})
	}
}

// sameReports compares the calls before a stall with those during it.
func sameReports(t *testing.T, all []collective.Report, rounds int) {
	t.Helper()
	if len(all) != 2*rounds {
		t.Fatalf("%d calls, not %d", len(all), 2*rounds)
	}
	for i, r := range all {
		first := all[rounds-1]
		if r.Retries != 0 || r.Algorithm != first.Algorithm || i > 0 && (r.Messages != first.Messages || r.Sent != first.Sent) {
			t.Errorf("call %d: %+v, not as %+v", i, r, first)
		}
	}
}

func closePairs(t *testing.T, mine []*pairRank) {
	t.Helper()
	for _, p := range mine {
		if p == nil {
			continue
		}
		if err := errors.Join(p.group.Close(), p.buffer.Close(kit.Context(t, patience))); err != nil {
			t.Error(err)
		}
	}
}
