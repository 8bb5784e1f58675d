package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// endOffer ends the offer of a victim whose name in publish/ has gone, and says
// how it has ended. Who has it open is told from now on.
func (v *victim) endOffer(ino Ino) EventKind {
	kind := v.kind
	if kind == "" {
		kind = EventWithdrawn
	}
	o := v.obj
	if o == nil {
		// Somebody may have opened it since the name was looked at.
		if o = v.store.pinLoaded(ino); o == nil {
			return kind
		}
		defer v.store.unpin(context.Background(), o, pinUse)
	}
	of := o.offer.Load()
	if of == nil {
		return kind
	}
	kind = of.end(kind, v.why)
	if v.ended = of.publication; kind != EventConsumed {
		v.result = ErrWithdrawn
	}
	return kind
}

// removal says how a file leaves publish/ for ever.
type removal struct {
	kind EventKind
	why  error
	// may is asked under the lock of the names, when nothing has changed yet.
	may func() error
}

// removeOffered takes the name of a file in publish/, which the caller has in
// use.
func (s *Store) removeOffered(ctx context.Context, o *object, of *offer, r removal) error {
	ctx = context.WithoutCancel(ctx)
	unlock := s.names.lock(metadata.PublishIno, metadata.PublishIno)
	v, err := s.victim(ctx, metadata.PublishIno, of.name)
	if err == nil && v.ino != o.ino {
		err = metadata.ErrNotExist // it has gone, and another one has come
	}
	if err == nil && r.may != nil {
		err = r.may()
	}
	if err == nil {
		v.kind, v.why = r.kind, r.why
		var after metadata.Inode
		if after, err = s.meta.Unlink(ctx, metadata.PublishIno, of.name); err == nil {
			v.removed(after)
		}
	}
	unlock()
	v.release(ctx)
	return err
}

// withdraw removes a publication whose memory has ended: nobody receives it any
// more, but for a reader who has every byte.
func (s *Store) withdraw(ctx context.Context, ino Ino, of *offer) {
	o := s.pinLoaded(ino)
	if o == nil || o.offer.Load() != of {
		if o != nil {
			s.unpin(ctx, o, pinUse)
		}
		return
	}
	defer s.unpin(ctx, o, pinUse)
	why := fmt.Errorf("the publisher of %q has ended: %w", of.name, ErrLost)
	err := s.removeOffered(ctx, o, of, removal{kind: EventWithdrawn, why: why, may: of.untaken})
	if err == nil || of.untaken() != nil {
		return
	}
	if of.end(EventWithdrawn, why) == EventWithdrawn && of.publication != nil {
		of.publication.end(ErrWithdrawn)
	}
	s.log.Warn("the name of what was published and has ended could not be removed",
		zap.Uint64("ino", uint64(ino)), zap.Error(err))
}

// clearPublished removes what an earlier run has left in publish/ that nobody
// can receive: what was received but for its name, and memory that was of
// users of that run. It gives the directory the mode and owner of those of
// devices. It runs before anybody uses the store.
func (s *Store) clearPublished(ctx context.Context, o Options) error {
	_, err := s.meta.Update(ctx, metadata.PublishIno, func(in *metadata.Inode) error {
		in.Mode, in.UID, in.GID = metadata.TypeDir|o.DirMode.Perm(), o.UID, o.GID
		return nil
	})
	if err != nil {
		return fmt.Errorf("the directory publish: %w", err)
	}
	var over []metadata.Entry
	after := metadata.Cookie(0)
	for {
		entries, err := s.meta.ReadDir(ctx, metadata.PublishIno, after, publishChunk)
		if err != nil {
			return fmt.Errorf("list publish: %w", err)
		}
		for _, e := range entries {
			after = e.Cookie
			in, err := s.meta.Get(ctx, e.Ino)
			if err != nil {
				return fmt.Errorf("look at %q of publish: %w", e.Name, err)
			}
			if in.Taken || in.Bound != metadata.Unbound {
				over = append(over, e)
			}
		}
		if len(entries) < publishChunk {
			break
		}
	}
	for _, e := range over {
		if _, err := s.meta.Unlink(ctx, metadata.PublishIno, e.Name); err != nil && !errors.Is(err, metadata.ErrNotExist) {
			return fmt.Errorf("remove %q of publish: %w", e.Name, err)
		}
	}
	return nil
}
