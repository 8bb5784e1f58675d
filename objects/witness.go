package objects

import (
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// The numbers that are kept with the files of a host tier.
const (
	// bondNumber is the one that the records have too: metadata.Bond.
	bondNumber = "records"
	// inosNumber is below none of the inode numbers that were given while the tier
	// was there.
	inosNumber = "inodes"
)

// witness has a host tier remember which inode numbers were given.
type witness struct {
	numbers devices.Numbers // of the tier

	mu sync.Mutex
	// inos is the limit that the tier has.
	// +checklocks:mu
	inos uint64
}

// Numbers notes the limit of the inode numbers that are given.
func (w *witness) Numbers(limit Ino) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint64(limit) <= w.inos {
		return nil
	}
	if err := w.numbers.SetNumber(inosNumber, uint64(limit)); err != nil {
		return err
	}
	w.inos = uint64(limit)
	return nil
}

// witnesses are those of all host tiers.
type witnesses []*witness

func (all witnesses) Numbers(limit Ino) error {
	var errs []error
	for _, w := range all {
		errs = append(errs, w.Numbers(limit))
	}
	return errors.Join(errs...)
}

var _ metadata.Witness = witnesses(nil)
