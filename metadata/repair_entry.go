package metadata

func (r repairer) danglingEntry(p Problem) error {
	e, err := r.entryOf(p)
	if err != nil {
		return err
	}
	if e.dir != nil && !e.dir.IsDir() {
		e.dir = nil
	}
	if e.rec != nil && e.dir != nil {
		return ErrChanged
	}
	return r.eraseEntry(p, e)
}

func (r repairer) entryType(p Problem, e foundEntry) error {
	e.mode = e.rec.Mode.Type()
	r.putDirent(p.Parent, p.cookie, &e.dirent)
	return r.recount(e.dir)
}

func (r repairer) secondEntry(p Problem, e foundEntry) error {
	if !e.rec.IsDir() {
		return ErrChanged
	}
	return r.eraseEntry(p, e)
}

// circle removes a directory from the circle that it is part of.
func (r repairer) circle(p Problem, e foundEntry) error {
	if err := r.eraseEntry(p, e); err != nil {
		return err
	}
	// The directory may be its own parent, and then it has just been stored.
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	return r.adopt(&rec)
}

func (r repairer) primary(p Problem, e foundEntry) error {
	if e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	r.deleteLink(p.Ino, p.Parent, p.cookie)
	e.rec.Parent, e.rec.Name = p.Parent, p.Name
	r.putInode(e.rec)
	return nil
}

func (r repairer) missingLink(p Problem, e foundEntry) error {
	if e.rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	r.putLink(p.Ino, p.Parent, p.cookie, p.Name)
	return nil
}

func (r repairer) danglingLink(p Problem, rec *record) error {
	d, err := r.direntAt(p.Parent, p.cookie)
	if err != nil {
		return err
	}
	if d.ino == p.Ino && d.name == p.Name && !rec.isPrimary(p.Parent, p.Name) {
		return ErrChanged
	}
	r.deleteLink(p.Ino, p.Parent, p.cookie)
	return nil
}
