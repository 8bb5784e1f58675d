package job_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// asyncSize is the size, in bytes, of in, out and result: 16384 numbers.
const asyncSize = 4 * partials

// stage is a rank with a device and a stream of its own: rank 0 computes out from in; rank
// 1 has out as its in and computes its result from that.
type stage struct {
	c         *comm.Communicator
	stream    devices.Stream
	in, out   *devices.Memory
	buffer    *region.Buffer // rank 0's out, rank 1's in
	forgetful bool
}

// newStage makes a rank; at rank 1 out holds ones, to add.
func newStage(ctx context.Context, t testing.TB, j *job.Job, d devices.Device) (s *stage, err error) {
	t.Helper()
	s = &stage{c: j.Communicator()}
	for _, at := range []**devices.Memory{&s.in, &s.out} {
		if *at, err = d.Alloc(ctx, asyncSize); err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = (*at).Release() })
	}
	if s.stream, err = devices.NewStream(ctx, d); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.stream.Close() })
	mine := s.out
	if j.World().Rank() == 1 {
		mine = s.in
	}
	s.buffer, err = j.Table().RegisterDevice(mine.All())
	return s, err
}

// given returns number i of in, in a round.
func given(i, round int) float32 { return float32((i+round)%251) / 10 }

// produce enqueues out = in + in, and a notification of the other rank once out is in its
// memory.
func (s *stage) produce(ctx context.Context, to wire.Descriptor, round int) error {
	device := s.in.Device()
	if err := device.CopyIn(ctx, s.in.All(), floats(partials, func(i int) float32 { return given(i, round) })); err != nil {
		return err
	}
	err := errors.Join(s.stream.Copy(s.out.All(), s.in.All()), s.stream.Reduce(s.out.All(), s.in.All(), elem.Float32, elem.Sum))
	if err != nil {
		return err
	}
	done, err := s.stream.Record()
	if err != nil {
		return err
	}
	if err = errors.Join(done.Wait(ctx), done.Close()); err != nil {
		return err
	}
	return s.c.PutNotify(ctx, 1, comm.Op{Local: s.buffer, Remote: to, Size: asyncSize}, wire.Tag(round))
}

// consume enqueues result = in + 1 before in has arrived: the stream waits for the other
// rank's notification.
func (s *stage) consume(ctx context.Context, round int) ([]byte, error) {
	device := s.in.Device()
	if err := device.CopyIn(ctx, s.out.All(), floats(partials, func(int) float32 { return 1 })); err != nil {
		return nil, err
	}
	come := devices.NewSignal()
	if s.forgetful {
		come.Set(nil)
	}
	err := errors.Join(s.stream.After(come), s.stream.Reduce(s.out.All(), s.in.All(), elem.Float32, elem.Sum))
	if err != nil {
		return nil, err
	}
	if s.forgetful {
		err = s.stream.Sync(ctx)
	}
	if err = errors.Join(err, s.c.SendTag(ctx, 0, wire.Tag(round))); err != nil { // rank 0 may start
		return nil, err
	}
	tag, err := s.c.RecvTag(ctx, 0)
	if err == nil && tag != wire.Tag(round) {
		err = fmt.Errorf("tag %d in round %d", tag, round)
	}
	come.Set(err)
	result := make([]byte, asyncSize)
	return result, errors.Join(err, s.stream.Sync(ctx), device.CopyOut(ctx, result, s.out.All()))
}

// consumeAll sends the location of in, and runs the rounds.
func (s *stage) consumeAll(ctx context.Context, rounds int) (wrongRounds int, err error) {
	d, err := s.c.Share(ctx, 0, s.buffer, wire.Writable)
	if err == nil {
		err = s.c.SendMessage(ctx, 0, d.Append(nil))
	}
	var result []byte
	for round := 1; round <= rounds && err == nil; round++ {
		if result, err = s.consume(ctx, round); err != nil {
			break
		}
		if wrong(result, func(i int) float32 { return 2*given(i, round) + 1 }) != nil {
			wrongRounds++
		}
	}
	return wrongRounds, err
}

// run runs some rounds at a rank, and counts those whose result is not 2·in + 1.
func (s *stage) run(ctx context.Context, rank, rounds int) (wrongRounds int, err error) {
	if rank == 1 {
		return s.consumeAll(ctx, rounds)
	}
	text, err := s.c.RecvMessage(ctx, 1)
	if err != nil {
		return 0, err
	}
	to, err := wire.ParseDescriptor(text)
	for round := 1; round <= rounds && err == nil; round++ {
		if _, err = s.c.RecvTag(ctx, 1); err == nil {
			err = s.produce(ctx, to, round)
		}
	}
	return 0, err
}

// TestAsyncNotify is simpler's async_notify on devices: in = (i%251)/10, out = 2·in
// computed by one rank's device, result = 2·in + 1 computed by the other's, whose stream
// waits for the notification that out has arrived. Without the wait it sees old numbers.
func TestAsyncNotify(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, rank int) devices.Device{
		"sim": func(_ *testing.T, rank int) devices.Device {
			return sim.New(devices.Ordinal(rank), sim.Params{Size: devices.MiB})
		},
		"opencl": func(t *testing.T, _ int) devices.Device { t.Helper(); return openCL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
				for _, forgetful := range []bool{false, true} {
					got := asyncNotify(t, start(t, 2, tweak), open, forgetful)
					if forgetful != (got > 0) {
						t.Errorf("forgetful %v: %d rounds are wrong", forgetful, got)
					}
				}
			})
		})
	}
}

func asyncNotify(t *testing.T, all []*job.Job, open func(t *testing.T, rank int) devices.Device, forgetful bool) (wrongRounds int) {
	t.Helper()
	const rounds = 20
	ctx := within(t)
	var two [2]devices.Device
	for rank := range two {
		two[rank] = open(t, rank)
		t.Cleanup(func() { _ = two[rank].Close() })
	}
	each(t, 2, func(rank int) error {
		s, err := newStage(ctx, t, all[rank], two[rank])
		if err != nil {
			return err
		}
		s.forgetful = forgetful
		got, err := s.run(ctx, rank, rounds)
		if rank == 1 {
			wrongRounds = got
		}
		return errors.Join(err, all[rank].World().Barrier(ctx), s.buffer.Close(ctx))
	})
	return wrongRounds
}

// openCL opens an OpenCL device.
func openCL(t *testing.T) devices.Device {
	t.Helper()
	kit.Require(t, "opencl")
	return devicetest.Open(t, opencl.NewDriver(opencl.Options{}), "opencl:0,size=16MiB")
}
