package filecollect

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
)

// deviceSegment is the number of bytes of a file that a device combines at once.
const deviceSegment = 16 << 20

// soleDevice returns the device that has all sources and results, if it can combine elements
// itself: the bytes then need not pass through the host. Otherwise it returns nil.
func (j *Job) soleDevice() devices.Device {
	if !j.task.Kind.Combines() {
		return nil
	}
	var only devices.Device
	for i := range j.places {
		for _, f := range []*objects.File{j.places[i].Source, j.places[i].Target} {
			if f == nil {
				continue
			}
			d := f.Device()
			if d == nil || only != nil && d != only {
				return nil
			}
			only = d
		}
	}
	if _, ok := only.(devices.Reducer); !ok {
		return nil
	}
	return only
}

// scratch is device memory in which a segment is combined.
type scratch struct {
	acc, term *devices.Memory
}

// newScratch allocates it. ok is false if that fails, or if the host can map the memory and is
// faster at combining.
func newScratch(ctx context.Context, d devices.Device) (s *scratch, ok bool) {
	s = &scratch{}
	var err error
	if s.acc, err = d.Alloc(ctx, deviceSegment); err != nil {
		return nil, false
	}
	if s.term, err = d.Alloc(ctx, deviceSegment); err != nil {
		_ = s.acc.Release() // the host does the work instead
		return nil, false
	}
	v, err := devices.MapHost(ctx, devices.Span{Mem: s.acc, Range: devices.Range{Len: 1}}, devices.ReadOnly)
	if err == nil {
		v.Release()
	}
	if !errors.Is(err, devices.ErrUnsupported) {
		_ = s.release() // the host does the work
		return nil, false
	}
	return s, true
}

func (s *scratch) release() error { return errors.Join(s.acc.Release(), s.term.Release()) }

// runOnDevice runs a task whose files are all on one device, in its memory. done is false if
// that is not possible.
func (j *Job) runOnDevice(ctx context.Context) (done bool, err error) {
	d := j.soleDevice()
	if d == nil || len(j.places) != j.task.Ranks {
		return false, nil
	}
	s, ok := newScratch(ctx, d)
	if !ok {
		return false, nil
	}
	defer func() { err = errors.Join(err, s.release()) }()
	byRank := make([]int, j.task.Ranks)
	for i := range j.places {
		byRank[j.places[i].Rank] = i
	}
	for _, u := range unitsOf(j.task, deviceSegment) {
		if err := j.unitOnDevice(ctx, s, byRank, u); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (j *Job) unitOnDevice(ctx context.Context, s *scratch, byRank []int, u unit) error {
	n := devices.Range{Len: devices.Size(u.n)}
	acc, term := devices.Span{Mem: s.acc, Range: n}, devices.Span{Mem: s.term, Range: n}
	for i, rank := range u.from {
		into := term
		if i == 0 {
			into = acc
		}
		moved, err := j.places[byRank[rank]].Source.CopyOut(ctx, u.at, transport.DeviceSpan(into))
		if err == nil && moved.N < u.n {
			err = fmt.Errorf("it was truncated to %d bytes in the meantime: %w", u.at+moved.N, io.ErrUnexpectedEOF)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return ofRank(rank, err)
		}
		if i == 0 {
			continue
		}
		if err := devices.Reduce(ctx, acc, term, j.task.Type, j.task.folds()); err != nil {
			return err
		}
	}
	if j.task.Op == elem.Avg {
		if err := devices.Divide(ctx, acc, j.task.Type, uint64(j.task.Ranks)); err != nil {
			return err
		}
	}
	for _, rank := range u.to {
		if to, ok := j.files[byRank[rank]].Result.(result); ok {
			if err := to.d.CopyIn(ctx, transport.DeviceSpan(acc), u.off); err != nil {
				return ofRank(rank, err)
			}
		}
	}
	return nil
}
