package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// DeviceStatus is one device of a store, for status, df and metrics.
type DeviceStatus struct {
	Info  devices.Info  `json:"info"`
	Epoch devices.Epoch `json:"epoch"`
	Usage devices.Usage `json:"usage"`
	Root  Ino           `json:"root"`
	// Passthrough says that the device's objects are files that the kernel
	// can serve by itself.
	Passthrough bool `json:"passthrough"`
	// Held is the memory that hmcfs has taken from the device, free pages
	// that it keeps for the next object included. 0 for the host tier.
	Held devices.Size `json:"held"`
}

// Devices tells the state of every device.
func (s *Store) Devices(ctx context.Context) ([]DeviceStatus, error) {
	var all []DeviceStatus
	for _, t := range s.tiers {
		d, err := t.status()
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// DeviceOf tells the state of the device whose tree holds the inode.
func (s *Store) DeviceOf(ctx context.Context, ino Ino) (DeviceStatus, error) {
	a, err := s.Attr(ctx, ino)
	if err != nil {
		return DeviceStatus{}, err
	}
	t, err := s.tierOf(a.Device)
	if err != nil {
		return DeviceStatus{}, err
	}
	return t.status()
}

func (t *tier) status() (DeviceStatus, error) {
	usage, err := t.usage()
	if err != nil {
		return DeviceStatus{}, fmt.Errorf("memory of %s: %w", t.name, err)
	}
	d := DeviceStatus{
		Info: t.dev.Info(), Epoch: t.dev.Epoch(), Usage: usage,
		Root: t.root, Passthrough: t.files != nil,
	}
	if t.arena != nil {
		d.Held = t.arena.Usage().Held
	}
	return d, nil
}

// Extents tells which device memory holds the object now.
func (s *Store) Extents(ctx context.Context, ino Ino) ([]metadata.Mapping, error) {
	o, err := s.pin(ctx, ino, pinUse)
	if err != nil {
		return nil, err
	}
	defer s.unpin(ctx, o, pinUse)
	x, ok := o.content().(*extents)
	if !ok {
		return nil, nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.records(), nil
}

// LostObject is an object whose bytes are gone.
type LostObject struct {
	Ino  Ino    `json:"ino"`
	Path string `json:"path"`
	Size uint64 `json:"size"`
}

// Lost visits every object whose bytes are gone.
func (s *Store) Lost(ctx context.Context, visit func(LostObject) error) error {
	return s.meta.Walk(ctx, func(in metadata.Inode) error {
		t, err := s.tierOf(in.Device)
		if err == nil && !isLost(t, in) || !in.IsRegular() {
			return nil
		}
		if o := s.pinLoaded(in.Ino); o != nil {
			err = o.overlay(&in)
			s.unpin(ctx, o, pinUse)
			if err != nil {
				return err
			}
		}
		path, err := s.meta.PathOf(ctx, in.Ino)
		if err != nil {
			return err
		}
		return visit(LostObject{Ino: in.Ino, Path: path, Size: in.Size})
	})
}

// RemoveLost removes every name of the objects that Lost finds and returns
// what it removed.
func (s *Store) RemoveLost(ctx context.Context) ([]LostObject, error) {
	var gone []LostObject
	err := s.Lost(ctx, func(o LostObject) error {
		gone = append(gone, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, o := range gone {
		if err := s.removeAll(ctx, o.Ino); err != nil {
			return gone[:i], fmt.Errorf("remove %s: %w", o.Path, err)
		}
	}
	return gone, nil
}

// removeAll removes an inode's names one by one: the record always tells one.
func (s *Store) removeAll(ctx context.Context, ino Ino) error {
	for {
		in, err := s.meta.Get(ctx, ino)
		if errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Unlink(ctx, in.Parent, in.Name); err != nil {
			return err
		}
	}
}

// Check visits every contradiction in the records.
func (s *Store) Check(ctx context.Context, visit func(metadata.Problem)) error {
	return s.meta.Check(ctx, visit)
}
