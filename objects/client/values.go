package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// mostReplaced is the number of times that Get looks up the size of a value that another size replaces before it is read.
const mostReplaced = 100

// Set keeps a copy of a value of at least one byte under a key, in host memory, as MSetD2H does with
// registered memory. The value is the caller's again when Set returns.
// Here Existing defaults to ExistingReplace. A key that ExistingSkip leaves unchanged is a success.
//
// Errors: those of MSetD2H for a key; ErrInvalid for a value without bytes.
func (s *Session) Set(ctx context.Context, key string, value []byte, o hetero.SetOptions) error {
	if len(value) == 0 {
		return fmt.Errorf("key %q: %w: the value has no bytes; give at least one", key, hetero.ErrInvalid)
	}
	if o.Existing == "" {
		o.Existing = hetero.ExistingReplace
	}
	v, err := s.values.take(ctx)
	if err != nil {
		return err
	}
	v.keys[0], v.blobs = key, append(v.blobs[:0], hetero.Blob{Size: devices.Size(len(value))})
	err = s.values.setFrom(ctx, v, value, o)
	s.values.give(v, err)
	return err
}

// setFrom executes a Set with a slot.
func (u *values) setFrom(ctx context.Context, v *slot, value []byte, o hetero.SetOptions) error {
	if len(value) <= slotSize {
		copy(v.bytes, value)
		v.place(v.memory, v.off)
		return u.transfer(ctx, v, adminapi.VerbMSetD2H, setCall(v.keys[:], v.lists[:], o))
	}
	f, id, err := u.memoryFor(ctx, devices.Size(len(value)))
	if err != nil {
		return err
	}
	defer u.release(ctx, f, id)
	if _, err = f.WriteAt(value, 0); err != nil {
		return fmt.Errorf("%w: %d bytes for key %q: %w", hetero.ErrNoMemory, len(value), v.keys[0], err)
	}
	v.place(id, 0)
	return u.transfer(ctx, v, adminapi.VerbMSetD2H, setCall(v.keys[:], v.lists[:], o))
}

// Get returns a copy of the bytes of a key, however it was set: those that it had at one time, also if it is replaced
// meanwhile.
//
// Errors: those of MGetH2D for a key.
func (s *Session) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := s.values.take(ctx)
	if err != nil {
		return nil, err
	}
	v.keys[0] = key
	value, err := s.values.getAlike(ctx, v)
	for i := 0; errors.Is(err, hetero.ErrShape) && i < mostReplaced; i++ {
		value, err = s.values.getInto(ctx, v)
	}
	s.values.give(v, err)
	return value, err
}

// getAlike reads a value of the size of those before, without a look-up of its size. It fails with ErrShape if the value has
// another one, or if those before had different ones.
func (u *values) getAlike(ctx context.Context, v *slot) ([]byte, error) {
	size := u.alike.Load()
	if size == 0 {
		return nil, hetero.ErrShape
	}
	v.blobs = append(v.blobs[:0], hetero.Blob{Size: devices.Size(size)})
	value, err := u.getSmall(ctx, v, devices.Size(size))
	if errors.Is(err, hetero.ErrShape) {
		u.alike.CompareAndSwap(size, 0)
	}
	return value, err
}

// noteSize expects further values of one blob to have a size, once two have it in turn.
func (u *values) noteSize(v *slot, size devices.Size) {
	if len(v.blobs) > 1 || size > slotSize {
		size = 0
	}
	if n := uint64(size); u.before.Swap(n) == n {
		u.alike.Store(n)
	}
}

// getSmall reads a value of a size into a slot.
func (u *values) getSmall(ctx context.Context, v *slot, size devices.Size) ([]byte, error) {
	v.place(v.memory, v.off)
	if err := u.read(ctx, v); err != nil {
		return nil, err
	}
	return bytes.Clone(v.bytes[:size]), nil
}

// getInto looks up the size of a value and reads it. It fails with ErrShape if the value has another size by then:
// DevMGet would return a part of one that has become larger.
func (u *values) getInto(ctx context.Context, v *slot) ([]byte, error) {
	size, err := u.sizeOf(ctx, v)
	if err != nil {
		return nil, err
	}
	u.noteSize(v, size)
	switch {
	case size == 0:
		return []byte{}, nil
	case size <= slotSize:
		return u.getSmall(ctx, v, size)
	}
	f, id, err := u.memoryFor(ctx, size)
	if err != nil {
		return nil, err
	}
	defer u.release(ctx, f, id)
	v.place(id, 0)
	if err = u.read(ctx, v); err != nil {
		return nil, err
	}
	value := make([]byte, size)
	if _, err = f.ReadAt(value, 0); err != nil {
		return nil, fmt.Errorf("%w: key %q: %w", hetero.ErrIO, v.keys[0], err)
	}
	return value, nil
}

// read reads the slot's key into its blobs.
func (u *values) read(ctx context.Context, v *slot) error {
	return u.transfer(ctx, v, adminapi.VerbMGetH2D, getCall(v.keys[:], v.lists[:], hetero.GetOptions{}))
}

// transfer makes a call with the key and the blobs of a slot.
func (u *values) transfer(ctx context.Context, v *slot, verb adminapi.Verb, q *adminapi.Call) error {
	_, err := u.session.resultsInto(ctx, verb, q, v.results[:0])
	return err
}

// sizeOf gives the slot the blobs that its key has, and returns the sum of their sizes.
func (u *values) sizeOf(ctx context.Context, v *slot) (size devices.Size, err error) {
	failure := errAnswer
	err = u.session.listed(ctx, adminapi.VerbInfo, &adminapi.Call{Keys: v.keys[:]}, func(l adminapi.Line) {
		size, v.blobs, failure = 0, v.blobs[:0], u.session.errorOf(l.Code, l.Error)
		for _, n := range l.Blobs {
			v.blobs = append(v.blobs, hetero.Blob{Size: n})
			size += n
		}
	})
	if err == nil && failure != nil {
		err = hetero.OfKey(v.keys[0], failure)
	}
	return size, err
}
