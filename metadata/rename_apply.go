package metadata

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
		return op.exchange(), nil
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

// permitPublish applies the rules for all other renames of names in PublishIno: a file may
// only leave it, and not once it was received.
func (op *renameOp) permitPublish() error {
	switch {
	case op.From != PublishIno && op.To != PublishIno:
		return nil
	case op.Flags == Exchange:
		return ErrInvalid
	case op.To == PublishIno:
		return ErrPermission
	case op.moved.Taken:
		return ErrNotExist
	}
	return nil
}

// publish applies the rules of Publish.
func (op *renameOp) publish() error {
	switch {
	case op.From == PublishIno:
		return ErrPermission
	case op.moved.IsDir():
		return ErrIsDir
	case !op.moved.IsRegular():
		return ErrInvalid
	case op.moved.Nlink > 1:
		return ErrTooManyLinks
	}
	if op.moved.Key != "" {
		op.t.del(op.t.keyString(kindKey, op.moved.Key))
		op.moved.Key = ""
	}
	op.t.dropParts(&op.moved)
	return nil
}

// move gives the inode its new name, replacing the inode that has it.
func (op *renameOp) move() (RenameResult, error) {
	t := op.t
	var res RenameResult
	if op.dst.found {
		op.dropOther()
		res.Replaced = &op.other.Inode
	} else {
		t.addDirent(op.To, op.NewName, op.dst, &op.moved)
	}
	if err := op.removeSource(); err != nil {
		return res, err
	}
	t.moveLink(&op.moved, op.oldPlace(), op.newPlace())
	dirs := subdirs(&op.moved)
	t.touchDir(op.from, -1, -dirs)
	t.touchDir(op.to, 1, dirs)
	op.store()
	res.Moved = op.moved.Inode
	return res, nil
}

// removeSource removes the old name. If the new one has the same hash, the old entry may
// have been marked for it, so it is read again.
func (op *renameOp) removeSource() error {
	src := op.src
	if op.From == op.To && src.cookie|lastSlot == op.dst.cookie|lastSlot {
		var err error
		if src, err = op.t.findDirent(op.From, op.Name); err != nil {
			return err
		}
	}
	op.t.removeDirent(op.From, src)
	return nil
}

// dropOther removes the new name from the inode that has it and gives it to the moving
// inode.
func (op *renameOp) dropOther() {
	t := op.t
	op.replaced = true
	if op.other.IsDir() {
		t.removeDir(&op.other)
	} else {
		t.dropLink(&op.other, op.To, op.dst.cookie, op.NewName)
	}
	t.touchDir(op.to, -1, -subdirs(&op.other))
	t.setDirent(op.To, op.dst, &op.moved)
}

// exchange swaps the two names.
func (op *renameOp) exchange() RenameResult {
	t := op.t
	t.setDirent(op.From, op.src, &op.other)
	t.setDirent(op.To, op.dst, &op.moved)
	t.moveLink(&op.moved, op.oldPlace(), op.newPlace())
	t.moveLink(&op.other, op.newPlace(), op.oldPlace())
	dirs := subdirs(&op.moved) - subdirs(&op.other)
	t.touchDir(op.from, 0, -dirs)
	t.touchDir(op.to, 0, dirs)
	t.putInode(&op.other)
	op.store()
	return RenameResult{Moved: op.moved.Inode, Exchanged: &op.other.Inode}
}

// store writes the moved inode and the directories.
func (op *renameOp) store() {
	op.t.putInode(&op.moved)
	op.t.putInode(op.from)
	if op.from != op.to {
		op.t.putInode(op.to)
	}
}
