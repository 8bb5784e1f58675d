package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// own creates a small file in a directory and returns its path.
func own(dir string) (string, error) {
	path := filepath.Join(dir, "own")
	return path, os.WriteFile(path, kit.Bytes(1, 0, 1000), 0o644)
}

// oddAttributes sets attributes with names and values that are difficult to store.
func (h *hand) oddAttributes(dir string) error {
	path, err := own(dir)
	errs := []error{err}
	for _, name := range []string{"user.", "user." + strings.Repeat("n", 250), "user." + strings.Repeat("n", 251), "user.\xff\n", "trusted.a", "security.capability", "system.posix_acl_access", "system.posix_acl_default", "security.selinux", "none", ""} {
		for _, size := range []int{0, 1, 65536, 65537} {
			errs = append(errs, unix.Setxattr(path, name, kit.Bytes(2, 0, size), 0))
		}
	}
	_, err = unix.Listxattr(path, make([]byte, 1))
	return errors.Join(append(errs, err)...)
}

// fillAttributes sets as many attributes on a file as permitted.
func (h *hand) fillAttributes(dir string) error {
	path, err := own(dir)
	if err != nil {
		return err
	}
	for i := 0; i < fill && !h.over(); i++ {
		if err = unix.Setxattr(path, fmt.Sprintf("user.%0200d", i), kit.Bytes(3, 0, 4096), 0); err != nil {
			break
		}
	}
	_, listed := unix.Listxattr(path, make([]byte, 65536))
	return errors.Join(err, listed)
}

// hmcfsAttributes returns the attributes that have a meaning to hmcfs.
func hmcfsAttributes() []string {
	return []string{"device", "resident", "state", "path", "dtype", "shape", "blobs", "key", "ttl", "bind", "handle", "none"}
}

// ownAttributes sets the attributes of hmcfs to invalid values.
func (h *hand) ownAttributes(dir string) error {
	path, err := own(dir)
	errs := []error{err}
	for _, name := range hmcfsAttributes() {
		if h.over() {
			break
		}
		for _, value := range []string{"", "\x00", "-1", "99999999999999999999", "float32", "1,2,3", "1e400", "{}", "[[[[", `{"pieces":[{}]}`, strings.Repeat("9", 60000), "../../x", "a/b"} {
			errs = append(errs, unix.Setxattr(path, "user.hmc."+name, []byte(value), 0))
		}
		_, err = unix.Getxattr(path, "user.hmc."+name, make([]byte, 4096))
		errs = append(errs, err, unix.Removexattr(path, "user.hmc."+name))
	}
	return errors.Join(errs...)
}

// attributesOfOthers tries to change the attributes of a victim's file.
func (h *hand) attributesOfOthers(string) error {
	path := h.prey()
	if path == "" {
		return unix.ENOENT
	}
	errs := []error{h.spare(path, "set an attribute of", unix.Setxattr(path, attribute, []byte("x"), 0)), h.spare(path, "remove an attribute of", unix.Removexattr(path, attribute))}
	for _, name := range hmcfsAttributes() {
		errs = append(errs,
			h.spare(path, "set user.hmc."+name+" of", unix.Setxattr(path, "user.hmc."+name, []byte("1"), 0)),
			h.spare(path, "remove user.hmc."+name+" of", unix.Removexattr(path, "user.hmc."+name)))
	}
	_, err := unix.Getxattr(path, "user.hmc.handle", make([]byte, 4096))
	return errors.Join(append(errs, h.spare(path, "export", err))...)
}

// ttl sets times to live on its own files and tries to on victims' files.
func (h *hand) ttl(dir string) error {
	path, err := own(dir)
	errs := []error{err}
	for _, value := range []string{"1", "1s", "0", "-1", "9223372036854775807", "1h", "1.5", " 1"} {
		errs = append(errs, unix.Setxattr(path, "user.hmc.ttl", []byte(value), 0))
	}
	if theirs := h.prey(); theirs != "" {
		errs = append(errs, h.spare(theirs, "set the time to live of", unix.Setxattr(theirs, "user.hmc.ttl", []byte("1"), 0)))
	}
	return errors.Join(errs...)
}

// keys tries to take victims' keys, and sets and removes its own.
func (h *hand) keys(dir string) error {
	path, err := own(dir)
	errs := []error{err}
	for _, place := range []string{"keys", "host/.keys", "sim0/.keys", filepath.Join("nodes", h.Other, "host", ".keys")} {
		for _, name := range h.victims(filepath.Join(h.Mount, place)) {
			key := filepath.Join(h.Mount, place, name)
			errs = append(errs, h.spare(key, "remove", os.Remove(key)), h.spare(key, "rename", os.Rename(key, filepath.Join(dir, "key"))),
				h.spare(key, "rename over", os.Rename(path, key)),
				// The victim may have removed the key meanwhile.
				unix.Setxattr(path, "user.hmc.key", []byte(name), 0))
		}
	}
	for i := range 8 {
		errs = append(errs, unix.Setxattr(path, "user.hmc.key", fmt.Appendf(nil, "%s-%d", h.name, i), 0))
	}
	return errors.Join(append(errs, unix.Removexattr(path, "user.hmc.key"))...)
}

// publications tries to receive the publications of all users, and publishes its own.
func (h *hand) publications(dir string) error {
	place := filepath.Join(h.Mount, "publish")
	var errs []error
	for _, name := range h.victims(place) {
		path := filepath.Join(place, name)
		_, err := os.ReadFile(path)
		errs = append(errs, h.spare(path, "receive", err), h.spare(path, "rename", os.Rename(path, filepath.Join(dir, "taken"))), h.spare(path, "withdraw", os.Remove(path)))
	}
	path, err := own(dir)
	if err != nil {
		return err
	}
	offered := filepath.Join(place, h.name)
	for range 4 {
		if err = os.Rename(path, offered); err != nil {
			break
		}
		if err = os.Rename(offered, path); err != nil {
			break
		}
	}
	return errors.Join(append(errs, err)...)
}

// watches has many goroutines read the stream of events for a moment.
func (h *hand) watches(dir string) error {
	var open []*os.File
	var errs []error
	for range 80 {
		f, err := os.Open(filepath.Join(h.Mount, ".hmcfs", "events"))
		if err != nil {
			errs = append(errs, err)
			break
		}
		open = append(open, f)
	}
	n, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(n, filepath.Dir(dir), unix.IN_ALL_EVENTS)
		err = errors.Join(err, unix.Close(n))
	}
	h.linger(50 * time.Millisecond)
	for _, f := range open {
		errs = append(errs, f.Close())
	}
	return errors.Join(append(errs, err)...)
}
