package metadata

import "errors"

// putOp creates one file of Put in a transaction.
type putOp struct {
	t   *txn
	dir *record
	*putFile
	sl       slot
	other    record    // the inode that has the name, if sl.found
	owner    keyHolder // what has the key; zero for nothing
	rec      record
	res      PutResult
	leftover bool // of other
}

// begin starts another file in the same memory.
func (op *putOp) begin(f *putFile) {
	if op.other.Ino != 0 {
		op.other = record{} // which few need
	}
	op.putFile, op.sl, op.owner, op.res, op.leftover = f, slot{}, keyHolder{}, PutResult{}, false
}

// run creates the file, or sets the reason for a refusal in the result without having
// written anything. Its error is one of the transaction.
func (op *putOp) run() error {
	refused, err := op.look()
	if refused != nil || err != nil {
		op.res = PutResult{Err: refused}
		return err
	}
	op.rec = op.t.newRecord(op.Ino, op.dir, op.Name, op.node)
	if op.Device != "" {
		op.rec.Device = op.Device
	}
	op.takeName()
	if op.Key != "" {
		if err = op.takeKey(); err != nil {
			return err
		}
	}
	op.content()
	if op.sl.found {
		replaced := op.other.Inode
		op.res.Replaced = &replaced
	}
	op.t.putInode(&op.rec)
	return nil
}

// look reads the inodes that the file would replace; refused is the reason if it may not.
func (op *putOp) look() (refused, err error) {
	switch {
	case op.dir.Ino == PublishIno && op.Device == "":
		return ErrInvalid, nil
	case op.dir.Ino == PublishIno && op.Key != "":
		return ErrPermission, nil
	case op.dir.Ino != PublishIno && op.Device != "" && op.Device != op.dir.Device:
		return ErrCrossDevice, nil
	}
	op.sl, err = op.t.findDirent(op.dir.Ino, op.Name)
	if errors.Is(err, ErrFull) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	if op.sl.found {
		if !op.Replace {
			return ErrExist, nil
		}
		if op.other, err = op.t.target(op.sl.dirent); err != nil {
			return nil, err
		}
		if op.other.IsDir() {
			return ErrIsDir, nil
		}
	}
	if refused = op.limited(); refused != nil {
		return refused, nil
	}
	if op.Key == "" {
		return nil, nil
	}
	op.owner, err = op.t.keyHolder(op.Key)
	switch {
	case errors.Is(err, ErrNotExist):
		return nil, nil
	case err == nil && !op.Replace:
		return ErrExist, nil
	}
	return nil, err
}

// limited checks the limits of the file's owner.
func (op *putOp) limited() error {
	more := int64(0)
	for name, value := range op.Xattrs {
		more += int64(len(name) + len(value))
	}
	var err error
	if !op.sl.found {
		err = op.t.mayName(op.node.UID)
	}
	if err == nil {
		err = op.t.mayGrow(op.node.UID, more)
	}
	return err
}

// takeName gives the name to the file, removing it from the inode that has it.
func (op *putOp) takeName() {
	t := op.t
	if !op.sl.found {
		t.touchDir(op.dir, 1, 0)
		t.addDirent(op.dir.Ino, op.Name, op.sl, &op.rec)
		return
	}
	t.dropLink(&op.other, op.dir.Ino, op.sl.cookie, op.Name)
	op.leftover = t.s.leftover(&op.other)
	t.touchDir(op.dir, 0, 0)
	t.setDirent(op.dir.Ino, op.sl, &op.rec)
}

// takeKey gives the key to the file, removing it from the inode that has it.
func (op *putOp) takeKey() error {
	if err := op.unkey(); err != nil {
		return err
	}
	op.rec.Key = op.Key
	op.t.putKey(op.Key, op.Ino)
	return nil
}

// unkey removes the key from the inode, or the part of one, that has it, unless that was just
// removed.
func (op *putOp) unkey() error {
	if op.owner.ino == 0 || op.owner.ino == op.other.Ino && op.other.Nlink == 0 {
		return nil
	}
	var owner *record
	switch op.owner.ino {
	case op.other.Ino:
		owner = &op.other
	case op.dir.Ino:
		owner = op.dir
	default:
		rec, err := op.t.inode(op.owner.ino)
		if err != nil {
			return keyOfNothing(op.Key, err)
		}
		owner = &rec
	}
	if op.owner.part != "" {
		op.t.del(op.t.partKey(owner.Ino, op.owner.part))
		owner.Parts--
	} else {
		op.res.Unkeyed = owner.Ino
		owner.Key = ""
	}
	owner.Ctime = op.t.now
	op.t.putInode(owner)
	return nil
}

// content stores the records that belong to the inode, and sets its counts.
func (op *putOp) content() {
	t, rec := op.t, &op.rec
	rec.Size, rec.Allocated = op.Size, op.Allocated
	rec.Epoch, rec.Path = op.Epoch, op.Path
	for i := range op.maps {
		t.putMapping(rec.Ino, &op.maps[i])
	}
	if rec.maps = uint64(len(op.maps)); rec.maps > 0 {
		rec.firstMap = op.maps[0].FileOff
	}
	for name, value := range op.Xattrs {
		t.putXattr(rec.Ino, name, value)
		t.use(rec.UID, 0, int64(len(name)+len(value)))
	}
	rec.xattrs = uint32(len(op.Xattrs))
	if op.Fleeting || op.Binding != nil {
		t.bind(rec, op.Binding)
	}
	t.expire(rec, op.Expires)
}
