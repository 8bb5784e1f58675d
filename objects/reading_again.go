package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// Reading holds what Progress was last told of an open file of publish/, by a process that has died.
type Reading struct {
	Delivered []Stretch
	Receives  bool
}

// Open opens the file again, and has p keep the progress from now on. If another reader has received the file, or it was
// withdrawn, Deliver fails as it did before.
func (r Reading) Open(ctx context.Context, s *Store, ino Ino, p Progress) (*File, error) {
	o, err := s.table.pin(ctx, ino, pinOpen)
	if err != nil {
		return nil, fmt.Errorf("open again: %w", err)
	}
	again := &reading{offer: o.offer.Load(), progress: p}
	for _, part := range r.Delivered {
		again.got.add(part)
	}
	mine := r.Receives
	if again.offer == nil {
		again.offer = newEndedOffer(ino, mine, &again.me)
		o.revived.Store(true) // the kernel has opened the file without passthrough
	} else {
		mine = mine && again.offer.adopt(&again.me)
	}
	again.receives(mine) // which the records need not have said when the process died
	return &File{store: s, obj: o, reading: again}, nil
}

// Track has p keep how far the file is read. It is called once, before Deliver.
func (f *File) Track(p Progress) {
	f.reading.mu.Lock()
	defer f.reading.mu.Unlock()
	f.reading.progress = p
}

// newEndedOffer makes the offer of a file that is not in publish/ any more; mine reports that a reader that still has it open
// has received it.
func newEndedOffer(ino Ino, mine bool, reader *claimant) *offer {
	name := fmt.Sprintf("#%d", ino)
	f := &offer{name: name, state: gone, why: errReceived(name), changed: make(chan struct{})}
	if mine {
		f.by = reader
	}
	return f
}

// adopt makes a reader the receiver of a file that it had received in an earlier process. It returns false if no
// reader of that process has received it.
func (f *offer) adopt(by *claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != taken || f.by != nil {
		return false
	}
	f.by = by
	return true
}

// unadopted fails unless the file was received in an earlier process, by a reader that this one does not have.
func (f *offer) unadopted() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != taken || f.by != nil {
		return fmt.Errorf("the receiver of %q has it open: %w", f.name, ErrBusy)
	}
	return nil
}

// removeReceived removes the names of files that readers of an earlier process have received and do not have open any
// more.
func (ps *publications) removeReceived(ctx context.Context, all []Ino) {
	for _, ino := range all {
		err := ps.removeTaken(ctx, ino)
		if err != nil && !errors.Is(err, metadata.ErrNotExist) {
			ps.log.Warn("could not remove the name of a file that was received", zap.Uint64("ino", uint64(ino)), zap.Error(err))
		}
	}
}

func (ps *publications) removeTaken(ctx context.Context, ino Ino) error {
	o, err := ps.table.pin(ctx, ino, pinUse)
	if errors.Is(err, ErrLost) { // its device is absent, so no reader has it open either
		in, failed := ps.meta.Get(ctx, ino)
		if failed != nil {
			return failed
		}
		return ps.names.unlinkSame(ctx, in, EventConsumed, nil)
	}
	if err != nil {
		return err
	}
	defer ps.table.unpin(ctx, o, pinUse)
	of := o.offer.Load()
	if of == nil || of.unadopted() != nil {
		return nil
	}
	return ps.removeOffered(ctx, o, of, EventConsumed, "", of.unadopted)
}
