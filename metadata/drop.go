package metadata

import (
	"context"
	"errors"
)

// dropBatch is the number of entries that one transaction of DropDevice removes.
const dropBatch = 256

// DropDevice removes what is on a device, with all names, attributes,
// mappings and keys, and tells how many inodes are gone; also what is in
// PublishIno. With keepTree only
// regular files go, and directories, symlinks and special files stay. The
// device's own directory always stays.
//
// It works in steps, each a transaction that leaves a sound tree, so that a
// failure or the end of the context leaves some of the files.
//
// Errors: ErrNotExist when the device is not known.
func (s *Store) DropDevice(ctx context.Context, name DeviceName, keepTree bool) (int, error) {
	var d DeviceRecord
	err := s.view(ctx, func(t *txn) (err error) {
		d, err = t.device(name)
		return err
	})
	if err != nil {
		return 0, err
	}
	w := dropper{s: s, keepTree: keepTree}
	if err = w.run(ctx, d.Ino); err == nil {
		err = w.published(ctx, name)
	}
	return w.removed, err
}

// dropper removes a tree from its leaves.
type dropper struct {
	s        *Store
	keepTree bool
	removed  int
}

// dropFrame is one directory on the way down.
type dropFrame struct {
	dir    Ino
	parent Ino
	name   string
	dirs   []Entry // directories in it that are still to be visited
}

func (w *dropper) run(ctx context.Context, root Ino) error {
	first, err := w.enter(ctx, dropFrame{dir: root})
	if err != nil {
		return err
	}
	stack := []dropFrame{first}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if n := len(top.dirs); n > 0 {
			sub := dropFrame{dir: top.dirs[n-1].Ino, parent: top.dir, name: top.dirs[n-1].Name}
			top.dirs = top.dirs[:n-1]
			if sub, err = w.enter(ctx, sub); err != nil {
				return err
			}
			stack = append(stack, sub)
			continue
		}
		if top.dir != root && !w.keepTree {
			if _, err := w.s.Rmdir(ctx, top.parent, top.name); err != nil {
				return err
			}
			w.removed++
		}
		stack = stack[:len(stack)-1]
	}
	return nil
}

// enter removes what is no directory from one, and notes its directories.
func (w *dropper) enter(ctx context.Context, f dropFrame) (dropFrame, error) {
	var after Cookie
	for {
		entries, err := w.s.ReadDir(ctx, f.dir, after, dropBatch)
		if err != nil {
			return f, err
		}
		var files []Entry
		for _, e := range entries {
			switch {
			case e.Type == TypeDir:
				f.dirs = append(f.dirs, e)
			case e.Type == TypeRegular || !w.keepTree:
				files = append(files, e)
			}
			after = e.Cookie
		}
		if err := w.unlink(ctx, f.dir, files); err != nil {
			return f, err
		}
		if len(entries) < dropBatch {
			return f, nil
		}
	}
}

// published removes the files of a device that are in PublishIno.
func (w *dropper) published(ctx context.Context, device DeviceName) error {
	var after Cookie
	for {
		entries, err := w.s.ReadDir(ctx, PublishIno, after, dropBatch)
		if err != nil {
			return err
		}
		var files []Entry
		for _, e := range entries {
			in, err := w.s.Get(ctx, e.Ino)
			switch {
			case err == nil && in.Device == device:
				files = append(files, e)
			case err != nil && !errors.Is(err, ErrNotExist):
				return err
			}
			after = e.Cookie
		}
		if err := w.unlink(ctx, PublishIno, files); err != nil {
			return err
		}
		if len(entries) < dropBatch {
			return nil
		}
	}
}

// unlink removes files of one directory, as many in one transaction as every
// KV takes.
func (w *dropper) unlink(ctx context.Context, dir Ino, files []Entry) error {
	defer w.s.locks.lock(dir)()
	for len(files) > 0 {
		var step dropStep
		err := w.s.update(ctx, func(t *txn) (err error) {
			step, err = t.dropFiles(dir, files)
			return err
		})
		if err != nil {
			return err
		}
		files = files[step.done:]
		w.removed += step.gone
		for _, ino := range step.left {
			w.s.purgeSoon(ctx, ino)
		}
	}
	return nil
}

// dropStep has the results of one transaction of a dropper.
type dropStep struct {
	done int   // how many entries it saw to
	gone int   // how many inodes went with them
	left []Ino // those of which records are left over
}

func (t *txn) dropFiles(dir Ino, files []Entry) (step dropStep, err error) {
	rec, err := t.dir(dir)
	if err != nil {
		return step, err
	}
	for weight := 0; step.done < len(files) && weight < t.s.purgeBatch; step.done++ {
		sl, err := t.findDirent(dir, files[step.done].Name)
		if err != nil {
			return step, err
		}
		if !sl.found || sl.mode == TypeDir {
			continue
		}
		file, err := t.unlink(&rec, sl)
		if err != nil {
			return step, err
		}
		weight += 4
		switch {
		case t.s.leftover(&file):
			step.left = append(step.left, file.Ino)
		case file.Nlink == 0:
			weight += int(file.maps) + int(file.xattrs)
		}
		if file.Nlink == 0 {
			step.gone++
		}
	}
	return step, t.putInode(&rec)
}
