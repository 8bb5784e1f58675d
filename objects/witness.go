package objects

import (
	"errors"
	"sync"

	"go.uber.org/zap"

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
	// changesNumber is the version that the records had after the last change.
	changesNumber = "changes"
)

// witness has a host tier remember how far the records have come.
type witness struct {
	files devices.Files
	log   *zap.Logger

	mu sync.Mutex
	// inos and changes are what the tier has.
	// +checklocks:mu
	inos, changes uint64
	// +checklocks:mu
	failed bool
}

// Numbers notes the limit of the inode numbers that are given.
func (w *witness) Numbers(limit Ino) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint64(limit) <= w.inos {
		return nil
	}
	if err := w.files.SetNumber(inosNumber, uint64(limit)); err != nil {
		return err
	}
	w.inos = uint64(limit)
	return nil
}

// Committed notes the version of the records.
func (w *witness) Committed(version uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version <= w.changes {
		return
	}
	err := w.files.SetNumber(changesNumber, version)
	if err == nil {
		w.changes = version
	}
	if err != nil && !w.failed {
		w.log.Warn("the host tier can't note how far the records have come; an older copy of them would not be known", zap.Error(err))
	}
	w.failed = err != nil
}

// restart has the version count from another one, which may be lower.
func (w *witness) restart(version uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.files.SetNumber(changesNumber, version); err != nil {
		return err
	}
	w.changes = version
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

func (all witnesses) Committed(version uint64) {
	for _, w := range all {
		w.Committed(version)
	}
}

var _ metadata.Witness = witnesses(nil)
