package objects

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// redo completes a draft that was being copied over a file of the host tier when the
// daemon died. It is a file of the tier beside the draft's that says over which object
// the draft is being copied. The next run repeats the copy before the store is in use.
// The file is made with the draft, and has its memory from then on.
type redo struct {
	tier *content.Tier
	// draft is the number of the draft's file.
	draft uint64
	file  *os.File
}

// redoBit distinguishes the numbers of redo files from those of objects.
const redoBit = uint64(1) << 63

// The format of a redo file, unless the copy has not begun (no magic):
//
//	0   magic
//	8   object
//	16  size of the draft in bytes
//
// It is written by a single call: the file is in memory, and if the daemon dies, the
// result of its last call remains.
const (
	redoMagic = "hmcredo1"
	redoSize  = 24
)

// newRedo makes the redo file for a draft.
func newRedo(t *content.Tier, draft uint64) (*redo, error) {
	if err := t.Files.Reserve(redoSize); err != nil {
		return nil, err
	}
	f, err := t.Files.Open(draft|redoBit, true)
	if err != nil {
		return nil, err
	}
	r := &redo{tier: t, draft: draft, file: f}
	if _, err = f.WriteAt(make([]byte, redoSize), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("create a repeatable draft: %w", err), r.remove())
	}
	return r, nil
}

// arm records that the draft, of size bytes, is being copied over an object.
func (r *redo) arm(ino Ino, size uint64) error {
	p := append(make([]byte, 0, redoSize), redoMagic...)
	p = binary.LittleEndian.AppendUint64(p, uint64(ino))
	p = binary.LittleEndian.AppendUint64(p, size)
	if _, err := r.file.WriteAt(p, 0); err != nil {
		return fmt.Errorf("record the copy over an object: %w", err)
	}
	return nil
}

// remove removes the file; call it before the draft is removed.
func (r *redo) remove() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.tier.Files.Remove(r.draft|redoBit), r.file.Close())
}

// read returns the content of the file; ok is false if no copy was under way.
func (r *redo) read() (ino Ino, size uint64, ok bool) {
	p := make([]byte, redoSize)
	if _, err := io.ReadFull(r.file, p); err != nil || string(p[:len(redoMagic)]) != redoMagic {
		return 0, 0, false
	}
	return Ino(binary.LittleEndian.Uint64(p[8:])), binary.LittleEndian.Uint64(p[16:]), true
}

// redoAll repeats the copies that were under way when the previous daemon died. It runs
// before the store is in use, and before the drafts are removed.
func (s *Store) redoAll(ctx context.Context, st *startup) error {
	for _, t := range s.tiers {
		if t.Files == nil {
			continue
		}
		var drafts []uint64
		err := t.Files.Each(func(id uint64) error {
			if id&redoBit != 0 {
				drafts = append(drafts, id&^redoBit)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("find interrupted copies on %s: %w", t.Name, err)
		}
		for _, draft := range drafts {
			if err := s.redoOne(ctx, t, draft, st.host[t].older != ""); err != nil {
				return fmt.Errorf("interrupted copy on %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

// redoOne repeats the copy of one draft, if it was under way. older reports that the
// records are not those that the tier was last used with.
func (s *Store) redoOne(ctx context.Context, t *content.Tier, draft uint64, older bool) error {
	f, err := t.Files.Open(draft|redoBit, false)
	if err != nil {
		return err
	}
	r := &redo{tier: t, draft: draft, file: f}
	if ino, size, ok := r.read(); ok {
		// There is one attempt only: writes to the file from now on are newer than the
		// draft.
		failure := s.copyAgain(ctx, t, draft, ino, size)
		if failure != nil && ctx.Err() != nil {
			return errors.Join(failure, f.Close()) // the next run repeats it
		}
		if failure != nil {
			s.log.Warn("could not repeat an interrupted copy; the file may have a mixture of old and new bytes", zap.Uint64("ino", uint64(ino)), zap.Error(failure))
		} else {
			s.log.Info("repeated an interrupted replacement of a file's content", zap.Uint64("ino", uint64(ino)), zap.Uint64("size", size))
		}
	}
	if older {
		// The target may have no record any more. The draft has none either, so it is set
		// aside with the other files without records.
		return r.remove()
	}
	return errors.Join(r.remove(), content.RemoveHostFile(t, s.engine, draft))
}

// copyAgain copies the content of a draft's file over an object.
func (s *Store) copyAgain(ctx context.Context, t *content.Tier, draft uint64, ino Ino, size uint64) error {
	body, err := content.OpenHostFile(t, s.engine, draft)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the new bytes no longer exist: %w", ErrLost)
	}
	if err != nil {
		return err
	}
	defer func() { _ = body.Backing().Close() }() // it was only read
	f, err := s.OpenFile(ctx, ino)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil // it was removed
	}
	if err != nil {
		return err
	}
	defer f.Abandon(ctx)
	if st, serr := body.Stat(); serr != nil || uint64(st.Size) != size {
		return errors.Join(serr, fmt.Errorf("there are %d new bytes, not %d: %w", st.Size, size, ErrLost))
	}
	if now, _ := f.obj.place(); now != t {
		return nil // its bytes are elsewhere, and complete
	}
	d := &Draft{file: f, tier: t, body: body, size: size}
	return f.obj.change(ctx, func() (err error) {
		if d.before, err = f.obj.draftMark(); err != nil {
			return err
		}
		return d.copyOver(ctx)
	})
}
