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
	var b Bond
	err := s.view(ctx, func(t *txn) error {
		data, err := t.kv.Get(t.keyString(kindBond, string(name)))
		if errors.Is(err, ErrNoKey) {
			return nil
		}
		if err == nil {
			b, err = decodeBond(data)
		}
		return err
	})
	if err != nil {
		return Bond{}, fmt.Errorf("bond of device %q: %w", name, err)
	}
	return b, nil
}

// SetDeviceBond replaces the bond of a device.
func (s *Store) SetDeviceBond(ctx context.Context, name DeviceName, b Bond) error {
	err := s.update(ctx, func(t *txn) error {
		return t.kv.Set(t.keyString(kindBond, string(name)), b.encode(nil))
	})
	if err != nil {
		return fmt.Errorf("bond of device %q: %w", name, err)
	}
	return nil
}

func (b Bond) encode(buf []byte) []byte {
	w := wireWriter(append(buf, bondVersion))
	w.u64(b.Now)
	w.u64(b.Before)
	return w
}

func decodeBond(data []byte) (Bond, error) {
	r := newWireReader("bond", data, bondVersion)
	b := Bond{Now: r.u64(), Before: r.u64()}
	return b, r.done()
}
