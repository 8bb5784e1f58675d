package perf

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// The gradients of a training step: many small tensors.
const (
	gradients    = 1000
	gradientSize = 16 * devices.KiB
)

// Gradients measures the reductions of one training step, with 1000 tensors of 16 KiB: the
// first row with fusion, the second tensor by tensor.
func (m *Meter) Gradients(ctx context.Context, table *region.Table) (rows []CollectiveRow, err error) {
	b, err := m.take(m.o.Memory, gradients*gradientSize)
	if err != nil {
		return nil, fmt.Errorf("memory of the gradients: %w", err)
	}
	if _, err = m.g.Share(ctx, b); err != nil {
		return nil, err
	}
	views := make([]domain.View, gradients)
	for i := range views {
		if views[i], err = domain.NewView(b, devices.Offset(i)*devices.Offset(gradientSize), elem.Float32, uint64(gradientSize)/4); err != nil {
			return nil, err
		}
	}
	fused, err := m.fused(ctx, table, views)
	if err != nil {
		return nil, err
	}
	single, err := m.steps(ctx, "gradients, one by one", func() error {
		for _, v := range views {
			if failed := m.g.AllReduce(ctx, v, v, elem.Sum); failed != nil {
				return failed
			}
		}
		return nil
	})
	return []CollectiveRow{fused, single}, err
}

// fused measures steps with one fuser, whose buffers are allocated once, as in training.
func (m *Meter) fused(ctx context.Context, table *region.Table, views []domain.View) (row CollectiveRow, err error) {
	f, err := fusion.New(ctx, m.g, table, fusion.Options{Type: elem.Float32, Op: elem.Sum, Window: -1})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	return m.steps(ctx, "gradients, fused", func() error { return step(ctx, f, views) })
}

// step reduces all tensors with a fuser.
func step(ctx context.Context, f *fusion.Fuser, views []domain.View) error {
	for _, v := range views {
		if _, err := f.Add(v); err != nil {
			return err
		}
	}
	return f.Flush(ctx)
}

// steps measures a step repeatedly.
func (m *Meter) steps(ctx context.Context, name string, run func() error) (CollectiveRow, error) {
	row := CollectiveRow{Kind: name, Ranks: m.g.Size(), Bytes: gradients * gradientSize, Type: elem.Float32.String()}
	var all []float64
	for round := -m.o.WarmUp; round < m.o.Rounds; round++ {
		took, _, err := m.round(ctx, 1, run)
		if err != nil {
			return row, err
		}
		row.describe(m.last)
		slowest, err := m.slowest(ctx, took)
		if err != nil {
			return row, err
		}
		if round >= 0 {
			all = append(all, slowest)
		}
	}
	row.Seconds, row.P99 = quantiles(all)
	return row, nil
}
