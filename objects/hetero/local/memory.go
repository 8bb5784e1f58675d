package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// PreRegister registers memory.
func (c *Client) PreRegister(ctx context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	id, err := c.register(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("register memory: %w", err)
	}
	return id, nil
}

func (c *Client) register(ctx context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer begun.leave()
	if err = c.roomForMemory(); err != nil {
		return 0, err // before a descriptor is taken for it
	}
	if m.Target != nil {
		t, failure := c.openTarget(call, m.Target)
		if failure != nil {
			return 0, c.failure(failure)
		}
		id, failure := c.keep(nil, t, m.Number)
		if failure != nil {
			t.close()
		}
		return id, failure
	}
	region, err := c.open(call, m)
	if err != nil {
		return 0, c.failure(err)
	}
	id, err := c.keep(region, nil, m.Number)
	if err != nil {
		return 0, errors.Join(err, region.Close(context.WithoutCancel(ctx)))
	}
	return id, nil
}

func (c *Client) open(ctx context.Context, m hetero.Memory) (*objects.Region, error) {
	switch {
	case m.Local != nil:
		return c.holder.Adopt(ctx, m.Device, m.Local)
	case m.Share != nil:
		handles, err := objects.HandlesOf(*m.Share, m.Files)
		if err != nil {
			return nil, err
		}
		return c.holder.Register(ctx, m.Device, objects.BindRequest{Memory: *m.Share, Handles: handles})
	}
	return c.openFile(ctx, m)
}

func (c *Client) openFile(ctx context.Context, m hetero.Memory) (*objects.Region, error) {
	if c.inode == nil {
		return nil, fmt.Errorf("files can't be registered, because this client has no mount: %w", objects.ErrUnsupported)
	}
	ino, err := c.inode(m.File)
	if err != nil {
		return nil, err
	}
	region, err := c.holder.RegisterFile(ctx, ino)
	if err != nil {
		return nil, err
	}
	if m.Device != "" && m.Device != region.Device() {
		err = fmt.Errorf("the file is on %s, not on the requested device %s: %w", region.Device(), m.Device, objects.ErrInvalid)
		return nil, errors.Join(err, region.Close(context.WithoutCancel(ctx)))
	}
	return region, nil
}

func (c *Client) roomForMemory() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.roomLocked()
}

// roomLocked checks whether another memory may be registered.
//
// +checklocksread:c.mu
func (c *Client) roomLocked() error {
	switch {
	case c.closed:
		return hetero.ErrClosed
	case len(c.memories)+len(c.targets) >= hetero.MaxMemories:
		c.refusals.memories.Add(1)
		return fmt.Errorf("%w: too many registrations, already %d", hetero.ErrNoMemory, len(c.memories)+len(c.targets))
	}
	return nil
}

// keep assigns a number to memory or, unless it is nil, to a target. number is the one that it had
// before; 0 for a new one.
//
// Errors: ErrInvalid for a number that is in use.
func (c *Client) keep(region *objects.Region, t *target, number hetero.MemoryID) (hetero.MemoryID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.roomLocked(); err != nil {
		return 0, err
	}
	if number == 0 {
		number = c.last + 1
	}
	if c.memories[number] != nil || c.targets[number] != nil || number >= 1<<63 {
		return 0, fmt.Errorf("%w: memory %d can't be registered", hetero.ErrInvalid, number)
	}
	c.last = max(c.last, number)
	if t != nil {
		c.targets[number] = t
		return number, nil
	}
	region.SetNumber(uint64(number))
	c.memories[number] = region
	return number, nil
}

// Unregister releases memory.
func (c *Client) Unregister(ctx context.Context, id hetero.MemoryID) error {
	_, begun, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("unregister memory: %w", err)
	}
	defer begun.leave()
	c.mu.Lock()
	region := c.memories[id]
	delete(c.memories, id)
	t := c.targets[id]
	delete(c.targets, id)
	c.mu.Unlock()
	if t != nil {
		t.close()
		return nil
	}
	if region == nil && objects.AskedAgain(ctx) {
		return nil // the daemon before has released it
	}
	if region == nil {
		return fmt.Errorf("unregister memory: %w: no registered memory %d", hetero.ErrNotFound, id)
	}
	// Dependent objects must be notified, whether or not the caller still waits.
	if err := region.Close(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("unregister memory: %w", c.failure(err))
	}
	return nil
}

// keyed converts the lists of a call to memory of the store.
//
// Errors: ErrInvalid for a blob that is not within memory of the client, on the list's device.
func (c *Client) keyed(keys []string, lists []hetero.DeviceBlobList) ([]objects.Keyed, error) {
	all, err := c.blobsOf(nil, keys, lists)
	if err != nil {
		return nil, err
	}
	out := make([]objects.Keyed, len(keys))
	for i, key := range keys {
		n := len(lists[i].Blobs)
		out[i] = objects.Keyed{Key: key, Blobs: all[:n:n]}
		all = all[n:]
	}
	return out, nil
}

// blobsOf appends the blobs of all lists, as memory of the store.
func (c *Client) blobsOf(all []objects.Blob, keys []string, lists []hetero.DeviceBlobList) ([]objects.Blob, error) {
	total := 0
	for i := range lists {
		total += len(lists[i].Blobs)
	}
	all = slices.Grow(all, total)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, key := range keys {
		for k, b := range lists[i].Blobs {
			region, err := c.regionLocked(lists[i].Device, b)
			if err != nil {
				return nil, fmt.Errorf("lists[%d] of key %q: blob %d: %w", i, key, k, err)
			}
			all = append(all, objects.Blob{Region: region, Off: uint64(b.Off), Len: uint64(b.Size)})
		}
	}
	return all, nil
}

// regionLocked returns the memory of a blob.
//
// +checklocksread:c.mu
func (c *Client) regionLocked(device devices.Name, b hetero.Blob) (*objects.Region, error) {
	region := c.memories[b.Memory]
	if region == nil {
		return nil, fmt.Errorf("%w: no registered memory %d", hetero.ErrInvalid, b.Memory)
	}
	if on := region.Device(); on != device {
		return nil, fmt.Errorf("%w: memory %d is on %s, not on %s", hetero.ErrInvalid, b.Memory, on, device)
	}
	if size := region.Size(); uint64(b.Off) > size || uint64(b.Size) > size-uint64(b.Off) {
		return nil, fmt.Errorf("%w: %d bytes at offset %d exceed memory %d, which has %d",
			hetero.ErrInvalid, b.Size, b.Off, b.Memory, size)
	}
	return region, nil
}

// WithMemory calls do with a range of registered memory. The context of do also ends with the
// client, which waits for do.
//
// Errors: hetero.ErrInvalid for a range that is not within memory of the client; ErrClosed; those
// of do, unchanged.
func (c *Client) WithMemory(ctx context.Context, b hetero.Blob, do func(ctx context.Context, b objects.Blob) error) error {
	begun, ok := c.uses.Get().(*call)
	if !ok {
		begun = &call{}
	}
	if err := c.enter(ctx, begun); err != nil {
		return err
	}
	err := c.use(begun, b, do)                         //nolint:contextcheck // a call is a context, of which ctx is the parent
	if begun.leave(); err == nil && begun.reusable() { // what has failed may look at it again
		c.uses.Put(begun)
	}
	return err
}

// use is WithMemory in the context of a call.
func (c *Client) use(ctx context.Context, b hetero.Blob, do func(ctx context.Context, b objects.Blob) error) (err error) {
	c.mu.RLock()
	region := c.memories[b.Memory]
	if region != nil {
		region, err = c.regionLocked(region.Device(), b)
	} else {
		err = fmt.Errorf("%w: no registered memory %d", hetero.ErrInvalid, b.Memory)
	}
	c.mu.RUnlock()
	if err != nil {
		return err
	}
	return do(ctx, objects.Blob{Region: region, Off: uint64(b.Off), Len: uint64(b.Size)})
}
