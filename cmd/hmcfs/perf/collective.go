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

// CollectiveOptions selects the measurements of a group.
type CollectiveOptions struct {
	// Kinds are the collectives. A barrier is measured once, regardless of the sizes.
	Kinds []plan.Kind
	// Sizes are the sizes of the whole in bytes, as plan.Task.Count is in elements.
	Sizes []devices.Size
	Type  elem.Type
	// Rounds is the number of measurements of each row, WarmUp the number of uncounted
	// rounds before them.
	Rounds int
	WarmUp int
	// Apart places the result in separate memory. Private memory is not shared with the
	// other ranks beforehand.
	Apart   bool
	Private bool
	// Compare also measures every other algorithm that can do the same, alternating with
	// the chosen one.
	Compare bool
	// Memory allocates the memory to measure; there is one allocation for all sizes.
	Memory func(devices.Size) (*region.Buffer, error)
	// Bounce allocates host memory. If set, a bounced variant is measured too, alternating
	// with the others: the program loads all of the source into host memory, runs the
	// collective on that, and stores all of the result, as it must if other memory can't be
	// passed.
	Bounce func(devices.Size) (*region.Buffer, error)
}

// CollectiveRow is one measurement. Times are for one call, at the slowest rank.
type CollectiveRow struct {
	Kind      string         `json:"kind"`
	Ranks     int            `json:"ranks"`
	Bytes     devices.Size   `json:"bytes"`
	Type      string         `json:"dtype,omitempty"`
	Algorithm plan.Algorithm `json:"algorithm"`
	// Because is the reason for the algorithm: "model", "option", or "plan" for one that is
	// measured for comparison only.
	Because string `json:"because"`
	// Path is the path of collective.Report, or Bounced.
	Path string `json:"path"`
	// Seconds is the median, P99 the 99th percentile, Predicted the estimate of the cost
	// model.
	Seconds   float64 `json:"seconds"`
	P99       float64 `json:"p99_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	// AlgorithmBandwidth and BusBandwidth are in bytes per second.
	AlgorithmBandwidth float64 `json:"algorithm_bytes_per_second"`
	BusBandwidth       float64 `json:"bus_bytes_per_second"`
	// Messages is the number of messages that this rank sent, Allocations that of heap
	// allocations in this process, both per call.
	Messages    uint64  `json:"messages"`
	Allocations float64 `json:"allocations"`
	// Fastest is the ratio of Seconds to that of the fastest comparable row.
	Fastest float64 `json:"over_fastest,omitempty"`
}

// Bounced is the path of bytes that were all copied to host memory before the call, and
// from it afterwards.
const Bounced = "bounced"

// short is the size below which one call is too short to be timed, and together the number
// of calls that are then timed as one.
const (
	short    = 64 * devices.KiB
	together = 200
)

// Meter measures at one of the ranks.
type Meter struct {
	g    *collective.Group
	o    *CollectiveOptions
	last *collective.Report
	// all is the memory of the calls, in which separate results begin at apart; took is the
	// memory for exchanging times.
	all   *region.Buffer
	apart devices.Offset
	took  *region.Buffer
	made  *content
	// host is the bounce buffer.
	host *region.Buffer
	// taken lists all allocated memory.
	taken []*region.Buffer
}

// NewMeter allocates the memory for measuring a group. Every rank calls it, with the same
// options. last is the report to which the group's Options.Observe copies each report.
// Close frees the memory.
func NewMeter(ctx context.Context, g *collective.Group, last *collective.Report, o CollectiveOptions) (m *Meter, err error) {
	m = &Meter{g: g, o: &o, last: last}
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

// Collectives measures the options' kinds and sizes. The operation is elem.Sum, and every
// element of every result is verified.
func (m *Meter) Collectives(ctx context.Context) (rows []CollectiveRow, err error) {
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

// allocate allocates the memory: twice the largest size, as the results of some kinds are
// always separate, and those of AllToAll may be larger by one element for each rank.
func (m *Meter) allocate() (err error) {
	const page = 4 * devices.KiB
	most := slices.Max(append([]devices.Size{page}, m.o.Sizes...))
	most = (most + devices.Size(m.g.Size())*8 + page - 1) / page * page
	m.apart = devices.Offset(most)
	if m.all, err = m.take(m.o.Memory, 2*most); err != nil {
		return fmt.Errorf("memory of %v: %w", 2*most, err)
	}
	if m.o.Bounce != nil {
		if m.host, err = m.take(m.o.Bounce, 2*most); err != nil {
			return fmt.Errorf("host memory of %v: %w", 2*most, err)
		}
	}
	if m.took, err = m.take(m.o.Memory, page); err != nil {
		return fmt.Errorf("memory of a time: %w", err)
	}
	return nil
}

// take allocates memory that Close frees.
func (m *Meter) take(from func(devices.Size) (*region.Buffer, error), n devices.Size) (*region.Buffer, error) {
	b, err := from(n)
	if err == nil {
		m.taken = append(m.taken, b)
	}
	return b, err
}

// Close frees the memory. The group must be closed before, since it holds shared buffers.
func (m *Meter) Close(ctx context.Context) error {
	var errs []error
	for _, b := range m.taken {
		errs = append(errs, b.Close(ctx))
	}
	return errors.Join(errs...)
}

// slowest returns the maximum of all ranks' times.
func (m *Meter) slowest(ctx context.Context, mine float64) (float64, error) {
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
