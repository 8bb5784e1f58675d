package cuda

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

const (
	// laneCount is the number of copies that a device executes at the same time; more have
	// to wait.
	laneCount = 8
	// chunkSize is the size, in bytes, of one chunk of pinned memory. All lanes of a device
	// together pin at most 32 MiB.
	chunkSize = 2 * devices.MiB
)

// lane has the resources of one copy: two streams and, once it has copied memory that is
// not pinned, two chunks of pinned memory.
type lane struct {
	streams [2]cuStream
	chunks  [2][]byte
}

// lanes are the lanes of a device. Those that have not been created are nil.
type lanes struct{ idle chan *lane }

func newLanes() lanes {
	l := lanes{idle: make(chan *lane, laneCount)}
	for range laneCount {
		l.idle <- nil
	}
	return l
}

// withLane calls fn with a lane and the device's context. fn must wait for the work that it
// starts.
func (d *device) withLane(ctx context.Context, fn func(*lane) error) error {
	var l *lane
	select {
	case l = <-d.lanes.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.lanes.idle <- l }()
	return d.On(func() error {
		if l == nil {
			made, err := newLane(d.api)
			if err != nil {
				return err
			}
			l = made
		}
		return fn(l)
	})
}

func newLane(a *api) (l *lane, err error) {
	l = &lane{}
	for i := range l.streams {
		if l.streams[i], err = a.createStream(); err != nil {
			return nil, errors.Join(err, l.destroy(a))
		}
	}
	return l, nil
}

// stage allocates the chunks, once.
func (l *lane) stage(a *api) (err error) {
	for i := range l.chunks {
		if l.chunks[i] == nil {
			if l.chunks[i], err = a.hostAlloc(chunkSize); err != nil {
				return err
			}
		}
	}
	return nil
}

// destroy frees the resources of the lane.
func (l *lane) destroy(a *api) error {
	var errs []error
	for i := range l.streams {
		if l.streams[i] != 0 {
			errs = append(errs, a.destroyStream(l.streams[i]))
		}
		if l.chunks[i] != nil {
			errs = append(errs, a.freeHost(l.chunks[i]))
		}
	}
	return errors.Join(errs...)
}

// clear destroys all lanes. None may be in use.
func (l lanes) clear(a *api) error {
	var errs []error
	for range laneCount {
		if x := <-l.idle; x != nil {
			errs = append(errs, x.destroy(a))
		}
		l.idle <- nil
	}
	return errors.Join(errs...)
}

// pump moves n bytes in pieces, one in flight per stream. m.start starts a piece; m.done,
// if not nil, is called when it is complete.
func (l *lane) pump(ctx context.Context, a *api, n, piece devices.Size, m mover) error {
	return moves.Pump{
		Piece: piece,
		Start: m.start,
		Finish: func(slot moves.Slot, off, n devices.Size) error {
			if err := a.synchronize(l.streams[slot]); err != nil || m.done == nil {
				return err
			}
			return m.done(slot, off, n)
		},
	}.Run(ctx, n)
}

// mover contains the functions that handle each piece of a pump.
type mover struct {
	start func(slot moves.Slot, off, n devices.Size) error
	done  func(slot moves.Slot, off, n devices.Size) error
}
