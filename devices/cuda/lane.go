package cuda

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

const (
	// laneCount is the number of moves that a device makes at the same time; more wait.
	laneCount = 8
	// chunkSize is a lane's piece of pinned memory. All lanes of a device
	// together pin at most 32 MiB.
	chunkSize = 2 * devices.MiB
)

// lane has the resources of one move: two streams, and two chunks of pinned memory
// once it has moved bytes of memory that is not pinned.
type lane struct {
	streams [2]cuStream
	chunks  [2][]byte
}

// lanes are a device's. Those that are not made yet are nil.
type lanes struct{ idle chan *lane }

func newLanes() lanes {
	l := lanes{idle: make(chan *lane, laneCount)}
	for range laneCount {
		l.idle <- nil
	}
	return l
}

// withLane calls fn with a lane and the device's context. What fn starts, it
// waits for.
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

// stage makes the chunks, once.
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

// destroy gives back what there is.
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

// clear destroys all lanes. None is in use.
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

// pump moves n bytes in pieces, one in each stream. start sets one on its way;
// done, if not nil, is called once it has arrived.
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

// mover handles each piece for a pump.
type mover struct {
	start func(slot moves.Slot, off, n devices.Size) error
	done  func(slot moves.Slot, off, n devices.Size) error
}
