package cuda

import (
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// device is an opened card.
type device struct {
	*card.Card
	card.Sharer
	card.Pinner
	api     *api
	entry   entry
	context cuContext
	// units are the granularities of VMM memory, 0 if the card does not support it.
	units units
	lanes lanes
	// kernels are the kernels that combine elements.
	kernels kernels
}

var (
	_ devices.Device     = (*device)(nil)
	_ devices.Pinner     = (*device)(nil)
	_ devices.PeerCopier = (*device)(nil)
	_ devices.Exporter   = (*device)(nil)
	_ devices.Importer   = (*device)(nil)
)

// newDevice opens a card by retaining its primary context.
func newDevice(r *Driver, a *api, e entry, size devices.Size) (*device, error) {
	context, err := a.retain(e.device)
	if err != nil {
		return nil, err
	}
	d := &device{api: a, entry: e, context: context, lanes: newLanes()}
	info := card.Describe(e.Info, size)
	d.Card = card.New(card.Spec{
		Info: info, Set: &r.cards,
		Log: r.log.With(zap.String("device", string(info.Name))), Clear: d.clear,
		Runtime: card.Runtime{
			Bind:        func() error { return a.check("cuCtxSetCurrent", code(a.CtxSetCurrent.Call(uintptr(context)))) },
			Retain:      func() (err error) { _, err = a.retain(e.device); return err },
			Release:     func() error { return a.release(e.device) },
			FreeMemory:  a.memInfo,
			Sticky:      func(err error) bool { return codeOf(err).Sticky() },
			OutOfMemory: func(err error) bool { return codeOf(err) == codeOutOfMemory },
		},
	})
	d.SetSelf(d)
	d.Sharer = card.NewSharer(d.Card, sharing{d})
	d.Pinner = card.NewPinner(d.Card, a.hostRegister, a.hostUnregister)
	if e.virtual {
		err = d.On(func() (err error) {
			d.units, err = d.readUnits()
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, a.release(e.device))
	}
	return d, nil
}

// clear frees the resources of copies and kernels. None may be in use.
func (d *device) clear() error { return errors.Join(d.lanes.clear(d.api), d.kernels.clear(d.api)) }
