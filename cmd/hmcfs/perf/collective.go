package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// CollectiveOptions say what is measured of a group.
type CollectiveOptions struct {
	// Kinds are the collectives. A barrier is measured once, whatever the sizes.
	Kinds []plan.Kind
	// Sizes are the bytes of the whole, as plan.Task.Count is its elements.
	Sizes []devices.Size
	Type  elem.Type
	// Rounds is the number of times that each row is measured, WarmUp how many times are
	// not counted before.
	Rounds int
	WarmUp int
	// Apart gives the result memory of its own. Private memory is not shared
	// with the other ranks beforehand.
	Apart   bool
	Private bool
	// Compare also measures every other algorithm that can do the same, in turns
	// with the one that is chosen.
	Compare bool
	// Memory takes the memory that is measured, of which there is one for all.
	Memory func(devices.Size) (*region.Buffer, error)
	// Bounce takes host memory. Not nil also measures, in turns, what a program
	// does that can't pass other memory on: it loads all of the source into host
	// memory, has the ranks work on that, and stores all of the result.
	Bounce func(devices.Size) (*region.Buffer, error)
}

// CollectiveRow is one measurement. Times are of one call at the rank that took
// longest.
type CollectiveRow struct {
	Kind      string         `json:"kind"`
	Ranks     int            `json:"ranks"`
	Bytes     devices.Size   `json:"bytes"`
	Type      string         `json:"dtype,omitempty"`
	Algorithm plan.Algorithm `json:"algorithm"`
	// Because says who chose the algorithm: "model", "option", or "plan" for one
	// that was measured only to be compared.
	Because string `json:"because"`
	// Path is collective.Report's, or Bounced.
	Path string `json:"path"`
	// Seconds is the median, P99 the 99th percentile, Predicted what the cost
	// model says.
	Seconds   float64 `json:"seconds"`
	P99       float64 `json:"p99_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	// AlgorithmBandwidth and BusBandwidth are in bytes a second.
	AlgorithmBandwidth float64 `json:"algorithm_bytes_per_second"`
	BusBandwidth       float64 `json:"bus_bytes_per_second"`
	// Messages are those that this rank sent, Allocations how often the heap of
	// this process was asked, both of one call.
	Messages    uint64  `json:"messages"`
	Allocations float64 `json:"allocations"`
	// Fastest is Seconds by those of the fastest row that does the same.
	Fastest float64 `json:"over_fastest,omitempty"`
}

// Bounced is the path of bytes that went through host memory, all of them before
// the call and all of them after it.
const Bounced = "bounced"

// short is below which size one call is too short for the clock, and together
// how many are taken at once then.
const (
	short    = 64 * devices.KiB
	together = 200
)

// Judge measures at one of the ranks.
type Judge struct {
	g    *collective.Group
	o    *CollectiveOptions
	last *collective.Report
	// all is the memory of the calls, where results that are apart begin at
	// apart; took is that of times.
	all   *region.Buffer
	apart devices.Offset
	took  *region.Buffer
	made  *content
	// host is the memory through which bytes bounce.
	host *region.Buffer
	// taken is all memory.
	taken []*region.Buffer
}

// NewJudge takes the memory for measuring a group: every rank calls it, with the
// same options. last is what the group's Options.Observe copies each report to.
// Close ends it.
func NewJudge(ctx context.Context, g *collective.Group, last *collective.Report, o CollectiveOptions) (m *Judge, err error) {
	m = &Judge{g: g, o: &o, last: last}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close(context.WithoutCancel(ctx)))
		}
	}()
	if m.made, err = newContent(o.Type, g.Size()); err != nil {
		return m, err
	}
	if err = m.allocate(); err != nil || o.Private {
		return m, err
	}
	if _, err = g.Share(ctx, m.all); err == nil && m.host != nil {
		_, err = g.Share(ctx, m.host)
	}
	return m, err
}

// Collectives measures the options' kinds and sizes. The operation is elem.Sum,
// and every element of every result is looked at.
func (m *Judge) Collectives(ctx context.Context) (rows []CollectiveRow, err error) {
	for _, kind := range m.o.Kinds {
		sizes := m.o.Sizes
		if kind == plan.Barrier {
			sizes = []devices.Size{0}
		}
		for _, size := range sizes {
			some, err := m.point(ctx, kind, size)
			if err != nil {
				return rows, fmt.Errorf("%s of %v: %w", kind, size, err)
			}
			rows = append(rows, some...)
		}
	}
	return rows, nil
}

// allocate takes the memory: twice the largest size, as the results of some
// kinds are always apart, and those of AllToAll may be larger by an element for
// each rank.
func (m *Judge) allocate() (err error) {
	const page = 4 * devices.KiB
	most := slices.Max(append([]devices.Size{page}, m.o.Sizes...))
	most = (most + devices.Size(m.g.Size())*8 + page - 1) / page * page
	m.apart = devices.Offset(most)
	if m.all, err = m.o.Memory(2 * most); err != nil {
		return fmt.Errorf("memory of %v: %w", 2*most, err)
	}
	m.taken = append(m.taken, m.all)
	if m.o.Bounce != nil {
		if m.host, err = m.o.Bounce(2 * most); err != nil {
			return fmt.Errorf("host memory of %v: %w", 2*most, err)
		}
		m.taken = append(m.taken, m.host)
	}
	if m.took, err = m.o.Memory(page); err != nil {
		return fmt.Errorf("memory of a time: %w", err)
	}
	m.taken = append(m.taken, m.took)
	return nil
}

// Close gives the memory back, after the group was closed, which holds what was
// shared.
func (m *Judge) Close(ctx context.Context) error {
	var errs []error
	for _, b := range m.taken {
		errs = append(errs, b.Close(ctx))
	}
	return errors.Join(errs...)
}

// slowest is the largest of all ranks' times.
func (m *Judge) slowest(ctx context.Context, mine float64) (float64, error) {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], math.Float64bits(mine))
	if err := m.took.Store(ctx, 0, transport.HostSpan(p[:])); err != nil {
		return 0, err
	}
	v, err := domain.NewView(m.took, 0, elem.Float64, 1)
	if err != nil {
		return 0, err
	}
	if err = m.g.AllReduce(ctx, v, v, elem.Max); err != nil {
		return 0, err
	}
	err = m.took.Load(ctx, transport.HostSpan(p[:]), 0)
	return math.Float64frombits(binary.LittleEndian.Uint64(p[:])), err
}
