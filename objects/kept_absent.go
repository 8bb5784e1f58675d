package objects

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
)

// absentMemory is memory that is kept of a device that is not mounted.
type absentMemory struct {
	names []string
	size  devices.Size
}

// freeAbsent frees what is kept of the memory of devices that the records do not know: no object can own it. That of
// a device that they know continues once the device is mounted again, and is reported.
//
// +checklocks:s.unclaimed
func (s *Store) freeAbsent(ctx context.Context) error {
	absent, err := s.absent()
	for name, memory := range absent {
		_, unknown := s.meta.DeviceEpoch(ctx, metadata.DeviceName(name))
		at := []zap.Field{zap.String("device", string(name)), zap.Uint64("bytes", uint64(memory.size))}
		switch {
		case unknown == nil:
			s.log.Warn("memory of a device that is not mounted is kept until it is mounted again, or the mount ends", at...)
		case errors.Is(unknown, metadata.ErrNotExist):
			for _, kept := range memory.names {
				err = errors.Join(err, s.keeper.Drop(kept))
			}
			s.freedAbsent.Add(uint64(memory.size))
			s.log.Warn("freed memory of a device that the records do not know", at...)
		default:
			err = errors.Join(err, unknown)
		}
	}
	return err
}

// absent returns what is kept of devices that are not mounted.
//
// +checklocks:s.unclaimed
func (s *Store) absent() (map[devices.Name]absentMemory, error) {
	kept, err := s.keeper.Kept(arena.AllKept)
	found := map[devices.Name]absentMemory{}
	for name, f := range kept {
		err = errors.Join(err, f.Close())
		device, size := arena.KeptOf(name)
		if _, missing := s.tiers.named(metadata.DeviceName(device)); missing != nil {
			memory := found[device]
			memory.names, memory.size = append(memory.names, name), memory.size+size
			found[device] = memory
		}
	}
	return found, err
}
