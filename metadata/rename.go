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

// MoveDevice is Rename of one inode to a parent directory is on another device, to which its content
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
		if err = op.t.unbind(&op.moved, false); err != nil {
			return err
		}
		_, err = op.t.replaceMappings(&op.moved, maps, math.MaxInt)
		return err
	})
}

// renameOp is the state of a running rename.
type renameOp struct {
	Rename
	t        *txn
	from, to *record // the directories, possibly the same record
	src, dst slot
	moved    record
	other    record // the inode that has the new name, if dst.found
	replaced bool   // other has lost the new name
}

func (op *renameOp) oldPlace() linkPlace {
	return linkPlace{dir: op.From, at: op.src.cookie, name: op.Name}
}

func (op *renameOp) newPlace() linkPlace {
	return linkPlace{dir: op.To, at: op.dst.cookie, name: op.NewName}
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

func (op *renameOp) run(place func(*renameOp) error) (RenameResult, error) {
	if err := op.read(); err != nil {
		return RenameResult{}, err
	}
	if op.dst.found && op.dst.ino == op.src.ino {
		if op.Flags == NoReplace {
			return RenameResult{}, ErrExist
		}
		return RenameResult{Moved: op.moved.Inode}, nil
	}
	if err := op.permit(); err != nil {
		return RenameResult{}, err
	}
	if err := place(op); err != nil {
		return RenameResult{}, err
	}
	if op.Flags == Exchange {
		return op.exchange()
	}
	return op.move()
}

// read reads all records that the rename concerns.
func (op *renameOp) read() error {
	t := op.t
	from, err := t.dir(op.From)
	if err != nil {
		return err
	}
	op.from, op.to = &from, &from
	if op.To != op.From {
		var to record
		if to, err = t.dir(op.To); err != nil {
			return err
		}
		op.to = &to
	}
	if op.src, err = t.findDirent(op.From, op.Name); err != nil {
		return err
	}
	if !op.src.found {
		return ErrNotExist
	}
	if op.dst, err = t.findDirent(op.To, op.NewName); err != nil {
		return err
	}
	if op.moved, err = t.target(op.src.dirent); err != nil || !op.dst.found {
		return err
	}
	op.other, err = t.target(op.dst.dirent)
	return err
}

// permit applies the rules that hold on any device.
func (op *renameOp) permit() error {
	switch {
	case op.Flags == NoReplace && op.dst.found:
		return ErrExist
	case op.Flags == Exchange && !op.dst.found:
		return ErrNotExist
	case op.From == RootIno || op.To == RootIno:
		return ErrPermission
	}
	if err := op.t.outside(&op.moved, op.To); err != nil {
		return err
	}
	if !op.dst.found {
		return nil
	}
	if op.Flags == Exchange {
		return op.t.outside(&op.other, op.From)
	}
	switch {
	case op.moved.IsDir() && !op.other.IsDir():
		return ErrNotDir
	case !op.moved.IsDir() && op.other.IsDir():
		return ErrIsDir
	case op.other.IsDir() && op.other.Size != 0:
		return ErrNotEmpty
	}
	return nil
}

// outside checks that a directory is neither rec nor inside of it. Each directory on the
// path to the root is read in this transaction, so no concurrent rename can make the result
// wrong.
func (t *txn) outside(rec *record, dir Ino) error {
	if !rec.IsDir() {
		return nil
	}
	for depth := 0; dir != RootIno; depth++ {
		if dir == rec.Ino {
			return fmt.Errorf("%w: directory would move into itself", ErrInvalid)
		}
		if depth > maxDepth {
			return fmt.Errorf("%w: directory %d is not under the root", ErrCorrupt, dir)
		}
		up, err := t.inode(dir)
		if err != nil {
			return err
		}
		dir = up.Parent
	}
	return nil
}
