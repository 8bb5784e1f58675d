package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Store is the object store. Its methods may be called from any goroutine.
type Store struct {
	meta   *metadata.Store
	engine *transport.Engine
	log    *zap.Logger
	atime  devices.Atime
	tiers  []*tier // in the order of Options.Devices; immutable
	table  table
	names  names
	// headers has what was read of files of tensors
	headers headers
	hole    []byte // what a hole looks like in place; nobody writes to it
	// background work that Close waits for
	work sync.WaitGroup
	stop context.CancelFunc
	// owners tells when processes end that own memory, or hold it.
	owners    *owner.Watcher
	guard     *owner.Guard
	notifying sync.RWMutex
	// notify is told of changes that no request made.
	// +checklocks:notifying
	notify func(ino Ino, lost bool)
	shared shared
	// holders are those that have not been closed.
	holders holders
	// refusedBlobs counts what holders with too many blobs were refused.
	refusedBlobs atomic.Uint64
	keyed        keyedState
	events       events
	notices      notices
	turns        turns
	// What Open has found; immutable after it.
	recovery  Recovery
	witnesses witnesses
}

// Open recovers the records of the devices and starts the store.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Store{
		meta: o.Meta, engine: o.Engine, log: o.Logger.Named("objects"), atime: o.Atime,
		hole: make([]byte, 64<<10), owners: owner.NewWatcher(), guard: o.Guard, headers: newHeaders(),
		keyed: keyedState{
			expiry: expiry{wake: make(chan struct{}, 1)},
			claims: claims{life: context.WithoutCancel(ctx)},
		},
	}
	for _, dev := range o.Devices {
		t, err := newTier(dev, o.Arena)
		if err != nil {
			return nil, errors.Join(err, s.closeTiers())
		}
		s.tiers = append(s.tiers, t)
		if err := s.adopt(ctx, t, o); err != nil {
			return nil, errors.Join(err, s.closeTiers())
		}
	}
	if err := s.recover(ctx, o); err != nil {
		err = errors.Join(err, s.owners.Close())
		s.work.Wait()
		return nil, errors.Join(err, s.letGo(), s.closeTiers())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.startExpiry(background)
	s.startTrim(background, o.TrimEvery)
	return s, nil
}

// recover sees to what an earlier run has left that depends on others.
func (s *Store) recover(ctx context.Context, o Options) error {
	if err := s.clearPublished(ctx, o); err != nil {
		return err
	}
	if err := s.rebind(ctx); err != nil {
		return err
	}
	if err := s.redoAll(ctx); err != nil {
		return err
	}
	return s.reckon(ctx)
}

// adopt makes the device's directory, or finds the one of an earlier run,
// and records the device's present epoch.
//
// Files of the host tier that belong to other records are refused: their
// numbers are given anew here, and old bytes would be seen in new objects.
func (s *Store) adopt(ctx context.Context, t *tier, o Options) error {
	if t.files != nil {
		if err := s.know(ctx, t); err != nil {
			return fmt.Errorf("adopt device %s: %w", t.name, err)
		}
		s.meta.SetWitness(s.witnesses)
	}
	before, err := s.meta.DeviceEpoch(ctx, t.name)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return fmt.Errorf("adopt device %s: %w", t.name, err)
	}
	root, err := s.meta.EnsureDevice(ctx, t.name, o.DirMode, o.UID, o.GID)
	if err != nil {
		return fmt.Errorf("adopt device %s: %w", t.name, err)
	}
	t.root = root.Ino
	if t.files != nil && before != 0 && before != t.epoch() {
		if err := s.loseHost(ctx, t, before); err != nil {
			return fmt.Errorf("adopt device %s: %w", t.name, err)
		}
	}
	if err := s.meta.SetDeviceEpoch(ctx, t.name, t.epoch()); err != nil {
		return fmt.Errorf("adopt device %s: %w", t.name, err)
	}
	s.log.Info("device adopted", zap.String("device", string(t.name)),
		zap.Uint64("epoch", uint64(t.epoch())), zap.Bool("same_epoch", before == t.epoch()))
	return nil
}

// CloseOptions say what a store leaves behind.
type CloseOptions struct {
	// Keep writes the records of what is still in use. Without it they are
	// left as they are, for a caller who throws the metadata away.
	Keep bool
}

// Close gives the device memory back. Nobody may use the store any more.
func (s *Store) Close(ctx context.Context, o CloseOptions) error {
	s.holders.end(ctx)
	s.stop()
	s.events.close()
	errs := []error{s.owners.Close()}
	s.work.Wait()
	if o.Keep {
		errs = append(errs, s.saveAll(ctx))
	}
	s.endOrphans()
	return errors.Join(append(errs, s.letGo(), s.closeTiers())...)
}

// letGo gives back what the table holds for other processes.
func (s *Store) letGo() error {
	var errs []error
	for _, o := range s.table.loaded(func(e *entry) bool { return e.pins == 0 }) {
		errs = append(errs, o.letGo())
	}
	return errors.Join(errs...)
}

func (s *Store) saveAll(ctx context.Context) error {
	var errs []error
	for _, o := range s.table.loaded(func(e *entry) bool { return e.orphan == nil }) {
		errs = append(errs, o.save(ctx))
	}
	return errors.Join(errs...)
}

func (s *Store) closeTiers() error {
	var errs []error
	for _, t := range s.tiers {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

func (s *Store) tierOf(name metadata.DeviceName) (*tier, error) {
	for _, t := range s.tiers {
		if t.name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("device %q is not part of this mount: %w", name, ErrLost)
}

// now is the time that inodes get: by the records' clock, so that times of
// one inode can be compared.
func (s *Store) now() metadata.Timespec { return s.meta.Now() }
