package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// replicas reads keys into host memory of this process, which then serves as another source
// for them, until the context ends.
func (a keyVerbs) replicas(ctx context.Context, pairs []keyPath, f *mgetFlags) error {
	c, _, err := a.openKeysOf(ctx, f.keyFlags, pairs)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is held any more
	r := a.newKeyReport("mget", pairs, heldLine)
	h := &holding{c: c, r: r}
	if err = h.find(ctx, f); err == nil {
		err = h.take(ctx)
	}
	if err = r.finish(ctx, *f.asJSON, err); err != nil && h.held == 0 {
		return err
	}
	a.note("this process holds %d replicas in host memory until it ends", h.held)
	<-ctx.Done()
	return errors.Join(err, ctx.Err())
}

func heldLine(row keyRow) string { return fmt.Sprintf("%s: replica of %d bytes", row.Key, row.Bytes) }

// holding is the memory into which keys are read.
type holding struct {
	c hetero.Client
	r *keyReport
	// lists holds the destination of each key, without blobs for a key that is not read.
	lists []hetero.DeviceBlobList
	size  devices.Size
	held  int
}

// find looks up the objects of the keys, and lays them out one after the other.
func (h *holding) find(ctx context.Context, f *mgetFlags) error {
	if f.timeout.Duration > 0 {
		if _, err := h.c.Wait(ctx, h.r.keys, false, f.timeout.Duration); ctx.Err() != nil {
			return err
		}
	}
	infos, err := h.c.GetMetaInfo(ctx, h.r.keys, false)
	if len(infos) != len(h.r.keys) {
		return err
	}
	h.lists = make([]hetero.DeviceBlobList, len(h.r.keys))
	for i, info := range infos {
		if info.Err == nil && info.Size == 0 {
			info.Err = fmt.Errorf("%w: an empty object has no replicas", hetero.ErrInvalid)
		}
		if info.Err != nil {
			h.r.fail(i, info.Err)
			continue
		}
		h.lists[i].Device = hostDevice
		for _, n := range info.Blobs {
			h.lists[i].Blobs = append(h.lists[i].Blobs, hetero.Blob{Off: devices.Offset(h.size), Size: n})
			h.size += n
		}
	}
	return nil
}

// hostDevice is the device of every mount that accepts memory of a process.
const hostDevice = devices.Name(host.Family)

// take reads the keys into registered memory.
func (h *holding) take(ctx context.Context) error {
	if h.size == 0 {
		return nil
	}
	id, err := h.register(ctx)
	if err != nil {
		return err
	}
	for i := range h.lists {
		if len(h.lists[i].Blobs) == 0 {
			continue
		}
		for k := range h.lists[i].Blobs {
			h.lists[i].Blobs[k].Memory = id
		}
		results, err := h.c.DevMGet(ctx, h.r.keys[i:i+1], h.lists[i:i+1], hetero.GetOptions{Replica: true})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = results.Err()
		}
		if err == nil {
			h.held++
			h.r.rows[i].Bytes = int64(h.lists[i].Size())
		}
		h.r.settle(i, err)
	}
	return nil
}

// register creates shared memory for all known keys. It belongs to this process, and is
// valid as long as the session has it.
func (h *holding) register(ctx context.Context) (hetero.MemoryID, error) {
	memory, err := share.Sealed("hmcfs-replicas", h.size)
	if err != nil {
		return 0, fmt.Errorf("allocate memory: %w", err)
	}
	defer func() { _ = memory.Close() }() // the daemon has its own descriptor
	return h.c.PreRegister(ctx, hostMemory(memory, h.size))
}
