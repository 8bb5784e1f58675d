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
	if _, files := devices.FilesOf(dev); files || k.Keeper == nil {
		return NewTier(dev, o)
	}
	name := dev.Info().Name
	log := k.Logger.With(zap.String("device", string(name)))
	lasting, ok := devices.LastingOf(dev)
	if !ok || errors.Is(lasting.Resume(dev.Epoch()), devices.ErrUnsupported) {
		log.Info("device memory ends with the daemon, although a holder keeps the mount")
		return NewTier(dev, o)
	}
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
	t.kept = kept
	if err := kept.find(); err != nil {
		return nil, errors.Join(fmt.Errorf("memory of %s that an earlier process has left: %w", name, err), t.Leave())
	}
	kept.id.first = t.Epoch()
	if t.table(t.Epoch()) == nil {
		return nil, errors.Join(fmt.Errorf("could not keep the state of %s", name), t.Leave())
	}
	return t, nil
}

// find finds what an earlier process has kept and continues its epoch. What contradicts
// itself, or the records, is dropped; after an error, everything is as it was.
func (k *keptTier) find() error {
	found, err := k.Keeper.Kept(arena.KeptPrefix(k.device))
	if len(found) > 0 {
		k.found = found
	}
	if err != nil || k.found == nil {
		return err
	}
	if err = k.resume(); !errors.Is(err, ErrLost) {
		return err
	}
	k.Logger.Error("device memory of an earlier process can't be used; its objects are lost", zap.String("device", string(k.device)), zap.Error(err))
	if err = k.drop(); err != nil {
		k.Logger.Warn("could not drop all of it", zap.Error(err))
	}
	return k.closeFound()
}

// resume continues the epoch of what was found.
//
// Errors: ErrLost for a contradiction.
func (k *keptTier) resume() error {
	f := k.found[keptName(k.device)]
	if f == nil {
		return fmt.Errorf("the state of its objects is missing: %w", ErrLost)
	}
	table, err := openKeptTable(f, k.id)
	if err != nil {
		return err
	}
	if !table.hasAll(k.found) {
		return errors.Join(fmt.Errorf("some of it is missing: %w", ErrLost), table.words.Unmap())
	}
	if err = k.dev.Resume(devices.Epoch(table.epoch)); err != nil {
		if errors.Is(err, devices.ErrLost) {
			err = errors.Join(ErrLost, err)
		}
		return errors.Join(err, table.words.Unmap())
	}
	k.mu.Lock()
	k.now, k.epoch = table, table.epoch
	k.mu.Unlock()
	return nil
}

// drop drops what was found, and the table.
func (k *keptTier) drop() error {
	errs := []error{k.Keeper.Drop(keptName(k.device))}
	for name := range k.found {
		errs = append(errs, k.Keeper.Drop(name))
	}
	return errors.Join(errs...)
}

func (k *keptTier) closeFound() error {
	var errs []error
	for _, f := range k.found {
		errs = append(errs, f.Close())
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
	before := k.now
	if k.now, err = newKeptTable(k.Keeper, k.device, id); err != nil {
		k.Logger.Warn("objects end with this process", zap.Error(err), zap.NamedError("drop", k.endTable(before)))
	}
	k.epoch = epoch
	return k.now
}

// endTable makes sure that no process continues with a table. It may be nil.
func (k *keptTier) endTable(kt *keptTable) error {
	if kt != nil {
		kt.words.At(headMagic).Store(0)
	}
	return k.Keeper.Drop(keptName(k.device))
}

// leave ends the use of the tables and of what was found. Content is not used any more.
func (k *keptTier) leave() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := []error{k.closeFound()}
	for _, table := range append(k.past, k.now) {
		if table != nil {
			errs = append(errs, table.words.Unmap())
		}
	}
	k.now, k.past = nil, nil
	return errors.Join(errs...)
}
