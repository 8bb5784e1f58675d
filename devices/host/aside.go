package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// asideName is the directory of a tier for the files that were set aside.
const asideName = "aside"

// SetAside moves a file out of the set and keeps its bytes.
func (f files) SetAside(id uint64) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	name := fileName(id)
	if err := setAside(f.d.store, name); err != nil {
		return &os.PathError{Op: "set host file aside", Path: name, Err: err}
	}
	f.d.limit.dismiss()
	return nil
}

// setAside moves a file to the directory of files set aside, under an unused name.
func setAside(s *store, name string) error {
	if err := unix.Mkdirat(int(s.root.Fd()), asideName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	dir, err := openDir(int(s.root.Fd()), asideName)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // only read
	for n, to := 1, name; ; n, to = n+1, fmt.Sprintf("%s-%d", name, n) {
		err := unix.Renameat2(int(s.files.Fd()), name, int(dir.Fd()), to, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// Aside lists the files that were set aside.
func (f files) Aside() ([]devices.AsideFile, error) {
	leave, err := f.d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return asideOf(f.d.store.root, f.d.store.path)
}

// Aside lists the files that were set aside in a tier that no process has open.
func (l Left) Aside() ([]devices.AsideFile, error) {
	root, err := openTier(l.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read
	return asideOf(root, l.Path)
}

// RemoveAside removes one file that was set aside.
func (l Left) RemoveAside(name string) error {
	root, err := openTier(l.Path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	return removeAside(root, name)
}

// asideOf lists the files that were set aside in a tier.
func asideOf(root *os.File, path string) ([]devices.AsideFile, error) {
	dir, err := openDir(int(root.Fd()), asideName)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host tier %s: %w", path, err)
	}
	defer func() { _ = dir.Close() }() // only read
	var all []devices.AsideFile
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // removed meanwhile
			}
			number, _, _ := strings.Cut(name, "-")
			id, _ := fileID(number)
			all = append(all, devices.AsideFile{
				Name: name, ID: id, Path: filepath.Join(path, asideName, name),
				Size: uint64(st.Size), Used: devices.Size(st.Blocks) * 512, Changed: time.Unix(st.Mtim.Unix()),
			})
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the files set aside in %s: %w", path, err)
		}
	}
}

// RemoveAside frees the memory of a file that was set aside.
func (f files) RemoveAside(name string) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	return removeAside(f.d.store.root, name)
}

func removeAside(root *os.File, name string) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("remove a file that was set aside: %q is not a file name", name)
	}
	dir, err := openDir(int(root.Fd()), asideName)
	if err == nil {
		defer func() { _ = dir.Close() }() // only read
		err = unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove file %s that was set aside: %w", name, err)
	}
	return nil
}
