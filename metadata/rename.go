package metadata

import (
	"context"
	"fmt"
	"math"
)

// Rename moves a name as specified by POSIX and renameat2: the inode that has the new name
// is replaced, two names of one inode are left alone, and with Exchange the names are
// swapped. A name in PublishIno can only move out of it, to a directory of the inode's
// device.
//
// Errors: ErrNotExist, also for a received file in PublishIno; ErrNotDir; ErrIsDir;
// ErrNotEmpty; ErrExist with NoReplace; ErrCrossDevice, after all checks that apply on one
// device too; ErrInvalid for a directory that would move into itself, unknown flags, or an
// exchange with a name in PublishIno; ErrPermission for names in the root and for one that
// would be in PublishIno; ErrNameTooLong; ErrInvalidName.
func (s *Store) Rename(ctx context.Context, r Rename) (RenameResult, error) {
	return s.rename(ctx, r, func(op *renameOp) error {
		if err := op.permitPublish(); err != nil {
			return err
		}
		if op.moved.Device != op.to.Device {
			return ErrCrossDevice
		}
		return nil
	})
}

// MoveDevice is Rename of one inode to a directory on another device, to which its content
// has been copied: in the same transaction the inode gets the device, the epoch and the
// mappings, and a binding is removed. Allocated becomes the sum of the mappings' lengths.
// The inode must have one link and must not be a directory.
//
// Errors: those of Rename; ErrIsDir for a directory; ErrTooManyLinks for an inode with more
// than one link; ErrInvalid with Exchange, if the directory does not belong to the device,
// or if mappings overlap.
func (s *Store) MoveDevice(ctx context.Context, r Rename, device DeviceName,
	epoch Epoch, maps []Mapping,
) (RenameResult, error) {
	if r.Flags&Exchange != 0 {
		return RenameResult{}, fmt.Errorf("%w: exchange of files on different devices", ErrInvalid)
	}
	maps, err := sortedMappings(maps)
	if err != nil {
		return RenameResult{}, err
	}
	return s.rename(ctx, r, func(op *renameOp) error {
		if err = op.permitPublish(); err != nil {
			return err
		}
		switch {
		case op.to.Device != device:
			return fmt.Errorf("%w: parent directory is on another device", ErrInvalid)
		case op.moved.IsDir():
			return ErrIsDir
		case op.moved.Nlink > 1:
			return ErrTooManyLinks
		}
		op.moved.Device, op.moved.Epoch = device, epoch
		op.moved.Allocated = 0
		for i := range maps {
			op.moved.Allocated += maps[i].Len
		}
		op.t.unbind(&op.moved)
		_, err = op.t.replaceMappings(&op.moved, maps, math.MaxInt)
		return err
	})
}

// rename runs a rename; place decides whether the inode may move to the directory, and
// makes the changes of the move besides those of the names.
func (s *Store) rename(ctx context.Context, r Rename, place func(*renameOp) error) (RenameResult, error) {
	if err := r.validate(); err != nil {
		return RenameResult{}, err
	}
	defer s.locks.lock2(r.From, r.To)()
	var res RenameResult
	var leftover bool
	err := s.grow(ctx, func(t *txn) (err error) {
		op := &renameOp{Rename: r, t: t}
		res, err = op.run(place)
		leftover = op.replaced && s.leftover(&op.other)
		return err
	})
	if err != nil {
		return RenameResult{}, err
	}
	if leftover {
		s.purgeSoon(ctx, res.Replaced.Ino)
	}
	return res, nil
}

func (r *Rename) validate() error {
	if err := validName(r.Name); err != nil {
		return err
	}
	if err := validName(r.NewName); err != nil {
		return err
	}
	if r.Flags > Exchange || r.Flags == NoReplace|Exchange {
		return fmt.Errorf("%w: unsupported rename flags %#x", ErrInvalid, uint32(r.Flags))
	}
	return nil
}
