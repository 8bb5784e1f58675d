package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// act is one kind of attempt of an attacker. It works in a directory of its own.
type act struct {
	name string
	do   func(h *hand, dir string) error
}

// acts returns all acts.
func acts() []act {
	return []act{
		{"odd names", (*hand).oddNames},
		{"names where none are made", (*hand).strangeNames},
		{"attributes of odd names and sizes", (*hand).oddAttributes},
		{"attributes of hmcfs, with garbage", (*hand).ownAttributes},
		{"change another's file", (*hand).changeOthers},
		{"change another's names", (*hand).renameOthers},
		{"attributes of another's file", (*hand).attributesOfOthers},
		{"read what is private", (*hand).readPrivate},
		{"links", (*hand).links},
		{"times to live", (*hand).ttl},
		{"keys", (*hand).keys},
		{"publications", (*hand).publications},
		{"fill with names", (*hand).fillNames},
		{"fill with attributes", (*hand).fillAttributes},
		{"races of renames", (*hand).renameRace},
		{"maps of what is cut", (*hand).mapRace},
		{"odd offsets", (*hand).oddOffsets},
		{"storm of statfs and names that are not there", (*hand).storm},
		{"hostile tensors", (*hand).tensors},
		{"locks on another's file", (*hand).locks},
		{"watches", (*hand).watches},
		{"bind", (*hand).bind},
		{"export with flags", (*hand).export},
		{"verbs of the owner", (*hand).ownersVerbs},
		{"keys over the socket", (*hand).session},
		{"garbage to the socket", (*hand).socketGarbage},
		{"connections to the socket", (*hand).socketMany},
		{"garbage to the nodes", (*hand).netGarbage},
		{"connections to the nodes", (*hand).netMany},
		{"squat places", (*hand).squat},
	}
}

// oddNames creates and removes files with names that programs often handle wrongly.
func (h *hand) oddNames(dir string) error {
	var errs []error
	for _, name := range []string{
		strings.Repeat("n", 255), strings.Repeat("n", 256), "\xff\xfe", "a\nb", "\x01\x1b[2J", ".keys", ".hmcfs-unfinished-1", ".hmcfs", "-rf", "*", "...", " ", "#1234", "a\\b", "x.tensors", "a:b", "'\"$(id)",
	} {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(name), 0o644)
		if err == nil {
			err = errors.Join(os.Rename(path, path[:len(path)-1]+"2"), os.Mkdir(path, 0o755))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// strangeNames creates names in the directories and files that hmcfs itself manages.
func (h *hand) strangeNames(dir string) error {
	own := filepath.Join(dir, "own")
	if err := os.WriteFile(own, []byte("x"), 0o644); err != nil {
		return err
	}
	var errs []error
	for _, place := range []string{
		"a", ".hmcfs/a", ".hmcfs/version", "nodes/a", "nodes/" + h.Other + "/a", "keys/a", "host/.keys/a", "sim0/.keys/a", "nodes/" + h.Other + "/host/.keys/a", "nodes/" + h.Other + "/sim0/.keys", "publish/dir/a", "host", "host/../a",
	} {
		path := filepath.Join(h.Mount, place)
		if h.over() {
			break
		}
		for what, err := range map[string]error{
			"make the directory ": os.Mkdir(path, 0o777), "make the file ": os.WriteFile(path, []byte("x"), 0o666), "link to ": os.Link(own, path),
			"rename to ": os.Rename(own, path), "make the link ": os.Symlink("/etc", path), "remove ": unix.Rmdir(path),
		} {
			errs = append(errs, h.forbid(what+place, err))
		}
	}
	return errors.Join(errs...)
}

// changeOthers tries changes of a victim's file that require permission to write it, or to
// own it.
func (h *hand) changeOthers(dir string) error {
	path := h.prey()
	if path == "" {
		return unix.ENOENT
	}
	fresh := filepath.Join(dir, "fresh")
	now := unix.NsecToTimeval(time.Now().UnixNano())
	open := func(flags int) error {
		f, err := os.OpenFile(path, flags, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	return errors.Join(
		h.spare(path, "open for writing", open(os.O_WRONLY)), h.spare(path, "open for appending", open(os.O_RDWR|os.O_APPEND)),
		h.spare(path, "open and cut", open(os.O_WRONLY|os.O_TRUNC)),
		h.spare(path, "cut", os.Truncate(path, 0)), h.spare(path, "chmod", os.Chmod(path, 0o777)), h.spare(path, "chown", os.Chown(path, os.Getuid(), -1)),
		h.spare(path, "set times of", unix.Utimes(path, []unix.Timeval{now, now})),
		os.WriteFile(fresh, []byte("x"), 0o666),
	)
}

// renameOthers tries to remove, rename and exchange a victim's names.
func (h *hand) renameOthers(dir string) error {
	path := h.prey()
	if path == "" {
		return unix.ENOENT
	}
	fresh := filepath.Join(filepath.Dir(path), h.name+"-fresh")
	errs := []error{
		h.spare(path, "remove", os.Remove(path)), h.spare(path, "rename", os.Rename(path, filepath.Join(dir, "stolen"))),
		h.spare(path, "rename the directory of", os.Rename(filepath.Dir(path), filepath.Join(dir, "stolen"))),
	}
	if err := os.WriteFile(fresh, []byte("x"), 0o644); err == nil { // in the shared directory
		errs = append(errs, h.spare(path, "exchange with", unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)), os.Remove(fresh))
	}
	return errors.Join(errs...)
}

// readPrivate tries to read a victim's private files through every path to them.
func (h *hand) readPrivate(string) error {
	victim := h.Victims[h.random.IntN(len(h.Victims))]
	private := filepath.Join(h.Mount, h.device(), victim, "private")
	_, err := os.ReadDir(private)
	errs := []error{h.forbid("list "+private, err)}
	_, err = os.Stat(private + "/.")
	errs = append(errs, h.forbid("enter "+private, err))
	for _, ways := range []string{"publish", "keys", "host/.keys", "sim0/.keys"} {
		dir := filepath.Join(h.Mount, ways)
		for _, name := range h.victims(dir) {
			path := filepath.Join(dir, name)
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || st.Mode&0o007 != 0 || int(st.Uid) == os.Getuid() {
				continue
			}
			f, err := os.Open(path)
			if err == nil {
				// The name may have become another file's meanwhile.
				err = unix.EAGAIN
				if now := new(unix.Stat_t); unix.Fstat(int(f.Fd()), now) == nil && now.Ino == st.Ino && now.Mode&0o007 == 0 {
					err = nil
				}
				_ = f.Close() // only read
			}
			errs = append(errs, h.spare(path, "open", err))
		}
	}
	return errors.Join(errs...)
}

// links creates hard links and symbolic links, and follows them.
func (h *hand) links(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	errs := []error{os.Symlink("loop2", at("loop1")), os.Symlink("loop1", at("loop2")), os.Symlink(strings.Repeat("x/", 2000), at("long")), os.Symlink("../../../../../../etc/shadow", at("out"))}
	_, err := os.ReadFile(at("loop1"))
	errs = append(errs, h.forbid("follow a loop", err))
	_, err = os.ReadFile(at("out"))
	errs = append(errs, h.forbid("read the shadow passwords", err), os.WriteFile(at("f"), []byte("x"), 0o644))
	for i := 0; i < 64 && !h.over(); i++ {
		errs = append(errs, os.Link(at("f"), at(fmt.Sprint("link", i))))
	}
	errs = append(errs, os.Link(dir, at("dir")), os.Link(at("f"), filepath.Join(h.Mount, "sim0", "attackers", h.name+"-link")))
	if path := h.prey(); path != "" {
		errs = append(errs, h.spare(path, "link", protected(os.Link(path, at("theirs")))), os.Symlink(path, at("to")), h.spare(path, "write through a link to", os.WriteFile(at("to"), []byte("x"), 0o644)))
	}
	return errors.Join(errs...)
}

// protected returns the error of a hard link to a victim's file. Without
// fs.protected_hardlinks the kernel permits such a link, so that counts as refused.
func protected(err error) error {
	if text, failed := os.ReadFile("/proc/sys/fs/protected_hardlinks"); failed != nil || strings.TrimSpace(string(text)) == "0" {
		return unix.EPERM
	}
	return err
}

// fill bounds the number of names and attributes that one act creates, so that no device
// becomes full.
const fill = 400

func (h *hand) fillNames(dir string) error {
	for i := 0; i < fill && !h.over(); i++ {
		path := filepath.Join(dir, fmt.Sprintf("%0200d", i))
		var err error
		switch i % 3 {
		case 0:
			err = os.WriteFile(path, nil, 0o644)
		case 1:
			err = os.Mkdir(path, 0o755)
		default:
			err = os.Symlink("x", path)
		}
		if err != nil {
			return err
		}
	}
	_, err := os.ReadDir(dir)
	return err
}

// renameRace moves directories into each other, and removes files in them, from several
// threads.
func (h *hand) renameRace(dir string) error {
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	if err := os.MkdirAll(at("a", "b", "c"), 0o755); err != nil {
		return err
	}
	var working sync.WaitGroup
	for _, step := range []func() error{
		func() error { return os.Rename(at("a", "b"), at("b")) },
		func() error { return os.Rename(at("b"), at("a", "b")) },
		func() error { return os.Rename(at("a"), at("a", "b", "c")) },
		func() error { return os.Rename(at("b"), at("b", "c", "d")) },
		func() error {
			return unix.Renameat2(unix.AT_FDCWD, at("a"), unix.AT_FDCWD, at("b"), unix.RENAME_EXCHANGE)
		},
		func() error { return os.WriteFile(at("a", "f"), []byte("x"), 0o644) },
		func() error { return os.Rename(at("a", "f"), at("b", "f")) },
		func() error { return os.Remove(at("b", "f")) },
	} {
		working.Go(func() {
			for n := 0; n < 30 && !h.over(); n++ {
				_ = step() // it fails if another step came first
			}
		})
	}
	working.Wait()
	return nil
}

// mapRace stores through a map of a file that another thread truncates.
func (h *hand) mapRace(dir string) error {
	const size = 64 << 10
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file is removed
	if err = f.Truncate(size); err != nil {
		return err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(p) }() // the file is removed
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for i := range 20 {
			_ = os.Truncate(f.Name(), int64(i%2)*size) // the file exists
		}
	})
	err = h.survive(func() error {
		for i := 0; i < size; i += 512 {
			p[i]++
		}
		return unix.Msync(p, unix.MS_SYNC)
	})
	cutting.Wait()
	return err
}

// oddOffsets reads, writes, truncates and copies at offsets that no file reaches.
func (h *hand) oddOffsets(dir string) error {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file is removed
	fd := int(f.Fd())
	far := []int64{1 << 40, 1<<62 - 1, 1<<63 - 4096, 1<<63 - 1}
	errs := []error{f.Truncate(1 << 50)}
	for _, off := range far {
		_, err = unix.Pread(fd, make([]byte, 100), off)
		errs = append(errs, err, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, off, 1<<63-1-off), unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, off, 1))
		_, err = unix.Seek(fd, off, unix.SEEK_DATA)
		errs = append(errs, err)
		_, err = unix.CopyFileRange(fd, &off, fd, new(int64), 1<<30, 0)
		errs = append(errs, err)
	}
	_, err = unix.Pwrite(fd, kit.Bytes(1, 0, 4097), 1<<63-4098)
	return errors.Join(append(errs, err, f.Truncate(0))...)
}

// storm makes many cheap requests.
func (h *hand) storm(dir string) error {
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			var fs unix.Statfs_t
			var st unix.Stat_t
			for n := 0; n < 500 && !h.over(); n++ {
				_ = unix.Statfs(dir, &fs)                                        // the result does not matter
				_ = unix.Stat(filepath.Join(dir, fmt.Sprint("none", i, n)), &st) // does not exist
			}
		})
	}
	working.Wait()
	_, err := os.ReadDir(h.Mount)
	return err
}

// tensors lists the tensors of files with malformed headers.
func (h *hand) tensors(dir string) error {
	var errs []error
	for i, head := range []string{
		"", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", "\x02\x00\x00\x00\x00\x00\x00\x00[]", "\x10\x00\x00\x00\x00\x00\x00\x00" + `{"../../x":{"dtyp`, strings.Repeat("[", 100000),
	} {
		path := filepath.Join(dir, fmt.Sprint(i, ".safetensors"))
		errs = append(errs, os.WriteFile(path, []byte(head), 0o644))
		_, err := os.ReadDir(path + ".tensors")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// locks acquires locks on a file that it may read, for the duration of the act.
func (h *hand) locks(string) error {
	path := h.prey()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}))
	return errors.Join(err, f.Close())
}
