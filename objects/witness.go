package objects

import (
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// The names of the numbers that are kept with the files of a host tier.
const (
	// bondNumber is the one that the records contain too: metadata.Bond.
	bondNumber = "records"
	// inosNumber is an upper limit of the inode numbers that were assigned while the tier
	// was in use.
	inosNumber = "inodes"
)

// witness makes a host tier remember the limit of the inode numbers that were assigned.
type witness struct {
	numbers devices.Numbers // of the tier

	mu sync.Mutex
	// inos is the limit that the tier has stored.
	// +checklocks:mu
	inos uint64
}

// Numbers records the limit of the inode numbers that are assigned.
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

// witnesses are the witnesses of all host tiers.
type witnesses []*witness

// Numbers records the limit with each of them.
func (all witnesses) Numbers(limit Ino) error {
	var errs []error
	for _, w := range all {
		errs = append(errs, w.Numbers(limit))
	}
	return errors.Join(errs...)
}
