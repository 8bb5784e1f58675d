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
		Info: info, Runtime: session{api: a, device: e.device, context: context}, Set: &r.cards,
		Log: r.log.With(zap.String("device", string(info.Name))), Clear: d.clear,
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

// session implements card.Runtime with the card's primary context.
type session struct {
	api     *api
	device  cuDevice
	context cuContext
}

var _ card.Runtime = session{}

// Bind makes the context current for the calling thread.
func (s session) Bind() error { return s.api.setCurrent(s.context) }

// Retain retains the context once more.
func (s session) Retain() error {
	_, err := s.api.retain(s.device)
	return err
}

// Release releases the context.
func (s session) Release() error { return s.api.release(s.device) }

// FreeMemory returns the memory that the card has left for all programs, in bytes.
func (s session) FreeMemory() (devices.Size, error) { return s.api.memInfo() }

// Sticky reports whether an error makes the context unusable.
func (session) Sticky(err error) bool { return codeOf(err).Sticky() }

// OutOfMemory reports whether an error is a lack of memory.
func (session) OutOfMemory(err error) bool { return codeOf(err) == codeOutOfMemory }
