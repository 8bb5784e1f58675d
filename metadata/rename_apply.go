package metadata

// move gives the inode its new name, replacing the inode that has it.
func (op *renameOp) move() (RenameResult, error) {
	t := op.t
	var res RenameResult
	if op.dst.found {
		if err := op.dropOther(); err != nil {
			return res, err
		}
		res.Replaced = &op.other.Inode
	} else if err := t.addDirent(op.To, op.NewName, op.dst, &op.moved); err != nil {
		return res, err
	}
	if err := op.removeSource(); err != nil {
		return res, err
	}
	err := t.moveLink(&op.moved, op.oldPlace(), op.newPlace())
	if err != nil {
		return res, err
	}
	dirs := subdirs(&op.moved)
	t.touchDir(op.from, -1, -dirs)
	t.touchDir(op.to, 1, dirs)
	res.Moved = op.moved.Inode
	return res, op.store()
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
	return op.t.removeDirent(op.From, src)
}

// dropOther removes the new name from the inode that has it and gives it to the moving
// inode.
func (op *renameOp) dropOther() error {
	t := op.t
	op.replaced = true
	var err error
	if op.other.IsDir() {
		err = t.removeDir(&op.other)
	} else {
		err = t.dropLink(&op.other, op.To, op.dst.cookie, op.NewName)
	}
	if err != nil {
		return err
	}
	t.touchDir(op.to, -1, -subdirs(&op.other))
	return t.setDirent(op.To, op.dst, &op.moved)
}

// exchange swaps the two names.
func (op *renameOp) exchange() (RenameResult, error) {
	t := op.t
	var res RenameResult
	if err := t.setDirent(op.From, op.src, &op.other); err != nil {
		return res, err
	}
	if err := t.setDirent(op.To, op.dst, &op.moved); err != nil {
		return res, err
	}
	err := t.moveLink(&op.moved, op.oldPlace(), op.newPlace())
	if err != nil {
		return res, err
	}
	err = t.moveLink(&op.other, op.newPlace(), op.oldPlace())
	if err != nil {
		return res, err
	}
	dirs := subdirs(&op.moved) - subdirs(&op.other)
	t.touchDir(op.from, 0, -dirs)
	t.touchDir(op.to, 0, dirs)
	if err := t.putInode(&op.other); err != nil {
		return res, err
	}
	res.Moved, res.Exchanged = op.moved.Inode, &op.other.Inode
	return res, op.store()
}

// store writes the moved inode and the directories.
func (op *renameOp) store() error {
	if err := op.t.putInode(&op.moved); err != nil {
		return err
	}
	if err := op.t.putInode(op.from); err != nil || op.from == op.to {
		return err
	}
	return op.t.putInode(op.to)
}
