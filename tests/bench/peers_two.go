package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/measure"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// two holds two ranks in this process, connected by TCP, with memory and a domain.
type two struct {
	engine  *transport.Engine
	ends    [2]*comm.Communicator
	memory  [2]*region.Buffer
	domains [2]*domain.Domains
	talk    [2]*domain.Comm
}

func newTwo(ctx context.Context, size devices.Size) (t *two, err error) {
	t = &two{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	if t.engine, err = transport.New(transport.Options{}); err != nil {
		return t, err
	}
	secret := make([]byte, 32) // the secret of two ends in one process
	for i := range t.ends {
		if t.ends[i], err = comm.New(comm.Options{
			Rank: wire.Rank(i), Secret: secret, Engine: t.engine, Transports: []comm.Transport{comm.TCP},
		}); err != nil {
			return t, err
		}
		if t.domains[i], err = domain.New(t.ends[i], domain.Options{}); err != nil {
			return t, err
		}
		if t.memory[i], err = t.ends[i].Table().Alloc(size); err != nil {
			return t, err
		}
	}
	at, err := t.ends[0].Listen(ctx, control.Address{Network: control.TCP, Addr: "127.0.0.1:0"})
	if err != nil {
		return t, err
	}
	if err = t.ends[1].Connect(ctx, 0, at); err != nil {
		return t, err
	}
	return t, measure.AtOnce(2, func(i int) (err error) {
		t.talk[i], err = t.domains[i].NewComm(ctx, "bench", []wire.Rank{0, 1})
		return err
	})
}

// close releases everything.
func (t *two) close(ctx context.Context) error {
	var errs []error
	for i := range t.ends {
		if t.domains[i] != nil {
			errs = append(errs, t.domains[i].Close()) //nolint:contextcheck // the end is not the context's
		}
		if t.ends[i] != nil {
			errs = append(errs, t.ends[i].Close())
		}
		if t.memory[i] != nil {
			errs = append(errs, t.memory[i].Close(context.WithoutCancel(ctx)))
		}
	}
	if t.engine != nil {
		errs = append(errs, t.engine.Close())
	}
	return errors.Join(errs...)
}

// The messages of the rows: one of the large size, and many small ones.
const (
	isends    = 20
	smalls    = 1000
	smallSize = 4 * devices.KiB
)

// domainRows returns the rows of point-to-point messages.
func (p *peers) domainRows() []row {
	const inProcess = "Over TCP, two ranks in one process."
	return []row{
		{
			name: fmt.Sprintf("Isend of %s returns, peer not posted", short(p.opts.large)), unit: micros, custom: p.isend,
			wants: []want{{of: "Isend", bound: 50e-6, atMost: true}},
			notes: []string{inProcess + fmt.Sprintf(" The median of %d; the receive is begun afterwards.", isends)},
		},
		{
			name: fmt.Sprintf("%d messages of %s", smalls, short(smallSize)), unit: perSecond, custom: p.multi,
			wants: []want{{of: "SendMulti", against: "Send", bound: 3}},
			notes: []string{inProcess + " Messages a second, until the last one has been received: one SendMulti and RecvMulti, or as many sends and receives."},
		},
	}
}

// isend measures the time of Isend alone.
func (p *peers) isend(ctx context.Context, rounds int) (res result, err error) {
	t, err := newTwo(ctx, p.opts.large)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	var views [2]domain.View
	for i := range views {
		if views[i], err = domain.All(t.memory[i], elem.Uint8); err != nil {
			return res, err
		}
	}
	f := figure{name: "Isend"}
	for range rounds * isends {
		begin := time.Now()
		r, err := t.talk[1].Isend(ctx, views[1], 0, 1)
		took := time.Since(begin)
		if err != nil {
			return res, err
		}
		f.series = append(f.series, took.Seconds())
		if err := errors.Join(t.talk[0].Recv(ctx, views[0], 1, 1), r.Wait(ctx)); err != nil {
			return res, err
		}
	}
	res.figures = append(res.figures, f)
	return res, nil
}

// multi sends many small messages, as one message and one by one.
func (p *peers) multi(ctx context.Context, rounds int) (res result, err error) {
	t, err := newTwo(ctx, smalls*smallSize)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	var views [2][]domain.View
	for i := range views {
		for n := range smalls {
			v, err := domain.NewView(t.memory[i], devices.Offset(n)*devices.Offset(smallSize), elem.Uint8, uint64(smallSize))
			if err != nil {
				return res, err
			}
			views[i] = append(views[i], v)
		}
	}
	return together(ctx, rounds, "SendMulti", "Send", func(ctx context.Context) (float64, float64, error) {
		fast, err := messages(func() error {
			return measure.AtOnce(2, func(i int) error {
				if i == 0 {
					return t.talk[0].RecvMulti(ctx, views[0], 1, 1)
				}
				return errors.Join(t.talk[1].SendMulti(ctx, views[1], 0, 1), t.talk[1].Flush(ctx, 0))
			})
		})
		if err != nil {
			return 0, 0, err
		}
		slow, err := messages(func() error { return measure.AtOnce(2, func(i int) error { return t.one(ctx, i, views[i]) }) })
		return fast, slow, err
	})
}

// one sends, or receives, one message after the other.
func (t *two) one(ctx context.Context, i int, views []domain.View) error {
	for _, v := range views {
		var err error
		if i == 0 {
			err = t.talk[0].Recv(ctx, v, 1, 2)
		} else {
			err = t.talk[1].Send(ctx, v, 0, 2)
		}
		if err != nil {
			return err
		}
	}
	if i == 0 {
		return nil
	}
	return t.talk[1].Flush(ctx, 0)
}

// messages returns the number of messages per second that a function moves, the best of
// several runs.
func messages(fn func() error) (float64, error) {
	var best float64
	for range 5 {
		begin := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		best = max(best, smalls/time.Since(begin).Seconds())
	}
	return best, nil
}
