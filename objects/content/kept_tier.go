package content

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
)

// KeepOptions say where the memory of a tier is kept, and for which records.
type KeepOptions struct {
	Keeper devices.DescriptorStore
	// Generation is that of the records, and Before the device's epoch in them: memory is
	// continued only for the same two.
	Generation metadata.Generation
	Before     metadata.Epoch
	Logger     *zap.Logger
}

// keptTier is the part of a tier whose memory outlives the process.
type keptTier struct {
	KeepOptions
	device devices.Name
	dev    devices.Lasting
	id     keptIdentity
	// found are the files of an earlier process, from NewKeptTier to Revive.
	found map[string]*os.File

	mu sync.Mutex
	// now is the table of the epoch; nil if it could not be kept.
	// +checklocks:mu
	now *keptTable
	// +checklocks:mu
	epoch metadata.Epoch
	// past are the tables of earlier epochs, to which content may still refer.
	// +checklocks:mu
	past []*keptTable
}

// NewKeptTier is NewTier for a device whose memory is to outlive the process, if it can. If
// the memory of an earlier process is there, it continues its epoch: then HasSurvivors is
// true, and the caller calls Survivors and Revive before any other use.
func NewKeptTier(dev devices.Device, o arena.Options, k KeepOptions) (*Tier, error) {
	lasting, ok := devices.LastingOf(dev)
	if !ok || k.Keeper == nil || errors.Is(lasting.Resume(dev.Epoch()), devices.ErrUnsupported) {
		return NewTier(dev, o)
	}
	name := dev.Info().Name
	log := k.Logger.With(zap.String("device", string(name)))
	kept := &keptTier{KeepOptions: k, device: name, dev: lasting, id: keptIdentity{generation: k.Generation, first: k.Before}}
	o.Keeper = keptSlabs{kept}
	o.Unkept = func(err error) {
		log.Warn("could not keep device memory; the objects in it end with this process", zap.Error(err))
	}
	t, err := NewTier(dev, o)
	if err != nil {
		return nil, err
	}
	kept.id.device, kept.id.entries = identify(dev.Info(), t.arena.PageSize())
	if err := kept.resume(); err != nil {
		log.Warn("device memory of an earlier process can't be used; its objects are lost", zap.Error(err))
	}
	kept.id.first = t.Epoch()
	t.kept = kept
	if t.table(t.Epoch()) == nil {
		return nil, errors.Join(fmt.Errorf("could not keep the state of %s", name), t.Close())
	}
	return t, nil
}

// resume finds what an earlier process has kept and continues its epoch. Without it, or
// after an error, it drops everything.
func (k *keptTier) resume() error {
	found, err := k.Keeper.Kept(arena.KeptPrefix(k.device))
	if err != nil {
		return fmt.Errorf("find kept memory: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	k.found = found
	f := found[keptName(k.device)]
	if f == nil {
		return errors.Join(errors.New("the state of its objects is missing"), k.dropFound())
	}
	table, err := openKeptTable(f, k.id)
	if err == nil && !table.hasAll(found) {
		err = errors.Join(errors.New("some of it is missing"), table.words.Unmap())
	}
	if err == nil {
		err = k.dev.Resume(devices.Epoch(table.epoch))
	}
	if err != nil {
		return errors.Join(err, k.dropFound())
	}
	k.mu.Lock()
	k.now, k.epoch = table, table.epoch
	k.mu.Unlock()
	return nil
}

// dropFound drops everything that an earlier process has kept.
func (k *keptTier) dropFound() error {
	var errs []error
	for name, f := range k.found {
		errs = append(errs, f.Close(), k.Keeper.Drop(name))
	}
	k.found = nil
	return errors.Join(errs...)
}

// table returns the table of an epoch: nil for memory that ends with the process, and for
// past epochs. The first call in a new epoch makes its table.
func (t *Tier) table(epoch metadata.Epoch) *keptTable {
	k := t.kept
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case epoch == k.epoch:
		return k.now
	case epoch < k.epoch:
		return nil
	}
	if k.now != nil {
		k.past = append(k.past, k.now)
	}
	id := k.id
	id.epoch = epoch
	var err error
	if k.now, err = newKeptTable(k.Keeper, k.device, id); err != nil {
		k.Logger.Warn("objects end with this process", zap.Error(err))
	}
	k.epoch = epoch
	return k.now
}

// close drops the tables. Content is not used any more.
func (k *keptTier) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := []error{k.dropFound(), k.Keeper.Drop(keptName(k.device))}
	for _, table := range append(k.past, k.now) {
		if table != nil {
			errs = append(errs, table.words.Unmap())
		}
	}
	k.now, k.past = nil, nil
	return errors.Join(errs...)
}
