package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// DeviceStatus describes one device of a store, for status, df and metrics.
type DeviceStatus struct {
	Info  devices.Info  `json:"info"`
	Epoch devices.Epoch `json:"epoch"`
	Usage devices.Usage `json:"usage"`
	Root  Ino           `json:"root"`
	// Passthrough reports that the device's objects are files that the kernel can serve
	// without the daemon.
	Passthrough bool `json:"passthrough"`
	// Held is the memory that hmcfs has allocated on the device, including free pages that
	// it keeps for the next object. 0 for the host tier.
	Held devices.Size `json:"held"`
	// Aside counts the files of the host tier that were set aside, and AsideUsed is their
	// part of Usage.
	Aside     int          `json:"aside,omitempty"`
	AsideUsed devices.Size `json:"aside_used,omitempty"`
}

// Devices returns the state of every device.
func (s *Store) Devices(ctx context.Context) ([]DeviceStatus, error) {
	var all []DeviceStatus
	for _, t := range s.tiers {
		d, err := statusOf(t)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// DeviceOf returns the state of the device on which an inode is.
func (s *Store) DeviceOf(ctx context.Context, ino Ino) (DeviceStatus, error) {
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return DeviceStatus{}, err
	}
	t, err := s.tiers.named(a.Device)
	if err != nil {
		return DeviceStatus{}, err
	}
	return statusOf(t)
}

func statusOf(t *content.Tier) (DeviceStatus, error) {
	usage, err := t.Usage()
	if err != nil {
		return DeviceStatus{}, fmt.Errorf("memory of %s: %w", t.Name, err)
	}
	d := DeviceStatus{
		Info: t.Dev.Info(), Epoch: t.Dev.Epoch(), Usage: usage,
		Root: t.Root, Passthrough: t.Files != nil,
	}
	if t.Files != nil {
		aside, err := t.Files.Aside()
		if err != nil {
			return DeviceStatus{}, fmt.Errorf("count the files set aside on %s: %w", t.Name, err)
		}
		d.Aside = len(aside)
		for _, f := range aside {
			d.AsideUsed += f.Used
		}
	}
	d.Held = t.Held()
	return d, nil
}

// Limits lists the limits for listeners and holders, and how much was refused because
// of each.
func (s *Store) Limits() []metadata.LimitStatus {
	return []metadata.LimitStatus{
		{Name: "waiting-events", Limit: queueLen, Refused: s.events.droppedSoFar()},
		{Name: "session-blobs", Limit: maxBlobs, Refused: s.bindings.refusedBlobs.Load()},
	}
}

// Extents returns the device memory that holds the object now.
func (s *Store) Extents(ctx context.Context, ino Ino) ([]metadata.Mapping, error) {
	o, err := s.table.pin(ctx, ino, pinUse)
	if err != nil {
		return nil, err
	}
	defer s.table.unpin(ctx, o, pinUse)
	x, ok := o.content().(*content.Extents)
	if !ok {
		return nil, nil
	}
	return x.Mappings(), nil
}
