package metadata

import (
	"context"
	"errors"
	"fmt"
)

// Bond ties records to the memory of a device that outlives the process: the same random
// number is stored with both, so that an outdated copy of the records is recognized. The
// zero Bond belongs to no memory.
type Bond struct {
	// Now is the number of the current use. Before is that of the previous use, which the
	// memory still has if the process died between the two updates.
	Now, Before uint64
}

// Fits reports whether memory with the given number was last used with these records.
func (b Bond) Fits(number uint64) bool { return number == b.Now || number == b.Before }

// DeviceBond returns the bond of a device; zero if there is none.
func (s *Store) DeviceBond(ctx context.Context, name DeviceName) (Bond, error) {
	b, err := read(ctx, s, func(t *txn) (Bond, error) {
		data, err := t.kv.Get(t.keyString(kindBond, string(name)))
		if errors.Is(err, ErrNoKey) {
			return Bond{}, nil
		}
		if err != nil {
			return Bond{}, err
		}
		return decodeBond(data)
	})
	if err != nil {
		return Bond{}, fmt.Errorf("bond of device %q: %w", name, err)
	}
	return b, nil
}

// SetDeviceBond replaces the bond of a device.
func (s *Store) SetDeviceBond(ctx context.Context, name DeviceName, b Bond) error {
	err := s.update(ctx, func(t *txn) error {
		t.set(t.keyString(kindBond, string(name)), b.encode())
		return nil
	})
	if err != nil {
		return fmt.Errorf("bond of device %q: %w", name, err)
	}
	return nil
}

func (b *Bond) fields(w *wire) {
	w.u64(&b.Now)
	w.u64(&b.Before)
}

func (b *Bond) encode() []byte {
	w := newWriter(nil, bondVersion)
	b.fields(&w)
	return w.data
}

func decodeBond(data []byte) (Bond, error) {
	var b Bond
	r := newReader("bond", data, bondVersion)
	b.fields(&r)
	return b, r.done()
}
