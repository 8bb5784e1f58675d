package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// markName is the name of a file in each directory that hmcfs uses. It records whether
// hmcfs created the directory, so that it may change its mode and removes it, or found it.
const markName = ".hmcfs"

// The texts of marks.
const (
	made  = "made by hmcfs\n"
	found = "used by hmcfs\n"
)

// writable holds the mode bits that let others write.
const writable = fs.FileMode(0o022)

// take creates a directory with a mode, and the missing ones above it, or accepts an
// existing one: an empty one, or one that hmcfs has used before. Only directories created
// by hmcfs get the mode.
func take(path string, uid int, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		return mark(path, made)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := directoryOf(path, uid)
	if err != nil {
		return err
	}
	by, err := markOf(path, uid)
	switch {
	case err != nil:
		return err
	case by == made && st.Mode().Perm() != mode:
		return os.Chmod(path, mode)
	case by == made:
		return nil
	case st.Mode()&writable != 0:
		return fmt.Errorf("other users may write to %s; revoke that permission (chmod go-w %s)", path, path)
	case mode == passable && st.Mode()&0o001 == 0:
		return fmt.Errorf("other users can't traverse %s, as --allow-other requires; permit it (chmod o+x %s)", path, path)
	}
	return nil
}

// directoryOf returns the directory of a user at a path, or at the target of a link there.
func directoryOf(path string, uid int) (fs.FileInfo, error) {
	if link, err := os.Lstat(path); err != nil || !belongsTo(link, uid, 0) {
		return nil, errors.Join(err, foreign(path, link))
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, fmt.Errorf("%s is not a directory; remove it", path)
	case !belongsTo(st, uid):
		return nil, foreign(path, st)
	}
	return st, nil
}

// foreign returns the error for a path that belongs to another user; nil without st.
func foreign(path string, st fs.FileInfo) error {
	if st == nil {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d; have it removed by that user or by root", path, ownerOf(st))
}

// markOf reads the mark of an existing directory, or creates the mark of a found one.
func markOf(path string, uid int) (string, error) {
	at := filepath.Join(path, markName)
	st, err := os.Lstat(at)
	if err == nil && st.Mode().IsRegular() && belongsTo(st, uid) {
		text, readErr := os.ReadFile(at)
		return string(text), readErr
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	names, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	// A lock that contains a daemon's note was left by a daemon without marks.
	lock := Paths{State: path}.StateLock()
	if st, err := os.Lstat(lock); err == nil && belongsTo(st, uid) {
		if last, _, err := ReadHolder(lock); err == nil && last.MountPoint != "" {
			return found, mark(path, found)
		}
	}
	if len(names) > 0 {
		return "", fmt.Errorf("%s exists, was not created by hmcfs, and is not empty (it has %q); use an empty directory, or one that does not exist yet",
			path, names[0].Name())
	}
	return found, mark(path, found)
}

func mark(dir, text string) error {
	return os.WriteFile(filepath.Join(dir, markName), []byte(text), 0o600)
}

// leave removes an empty directory that hmcfs created. If an empty directory existed
// before, only its mark is removed.
func leave(dir string) {
	at := filepath.Join(dir, markName)
	by, err := os.ReadFile(at)
	if err != nil {
		return
	}
	names, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(names, func(e fs.DirEntry) bool { return e.Name() != markName }) {
		return
	}
	_ = os.Remove(at)
	if string(by) == made {
		_ = os.Remove(dir)
	}
}

// ownBase creates the directory that holds the links of a user's mounts, and checks that no
// other user can write to it.
func ownBase(path string, uid int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, passable); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := directoryOf(path, uid)
	if err == nil && st.Mode()&writable != 0 {
		err = fmt.Errorf("other users may write to %s; check its contents, and revoke that permission (chmod go-w %s)", path, path)
	}
	if err != nil && uid != 0 {
		err = fmt.Errorf("%w, or set XDG_RUNTIME_DIR to a directory of yours, for this and for later commands", err)
	}
	if err != nil {
		return err
	}
	if st.Mode().Perm() != passable {
		return os.Chmod(path, passable)
	}
	return nil
}

// believable returns an error unless only the owner or root can have created a directory,
// and can write to it. A missing directory is accepted: there is nothing to connect to.
func believable(path string, owner int) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.IsDir(), !belongsTo(st, owner, 0), st.Mode()&writable != 0:
		return fmt.Errorf("%s is not trusted: it must be a directory of user %d that others can't write to", path, owner)
	}
	return nil
}
