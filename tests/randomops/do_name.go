package randomops

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func doChmod(r *runner, o Op) Step {
	return answer(unix.Chmod(r.path(o.Args[0]), o.mode(1)), "changed")
}

func doFchmod(r *runner, o Op) Step {
	return r.with(o.slot(0), func(fd int) Step { return answer(unix.Fchmod(fd, o.mode(1)), "changed") })
}

// doUtimens sets both times and returns their values afterwards.
func doUtimens(r *runner, o Op) Step {
	path := r.path(o.Args[0])
	times := []unix.Timespec{unix.NsecToTimespec(o.number(1)), unix.NsecToTimespec(o.number(2))}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return answer(err, "")
	}
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return answer(err, "accessed %d, changed %d", st.Atim.Nano(), st.Mtim.Nano())
}

func doSetXattr(r *runner, o Op) Step {
	value := kit.Bytes(o.seed(2), 0, int(o.seed(2)%200))
	return answer(unix.Lsetxattr(r.path(o.Args[0]), o.Args[1], value, 0), "set")
}

func doDelXattr(r *runner, o Op) Step {
	return answer(unix.Lremovexattr(r.path(o.Args[0]), o.Args[1]), "removed")
}

func doMkdir(r *runner, o Op) Step { return answer(unix.Mkdir(r.path(o.Args[0]), o.mode(1)), "made") }
func doRmdir(r *runner, o Op) Step { return answer(unix.Rmdir(r.path(o.Args[0])), "removed") }

func doSymlink(r *runner, o Op) Step {
	return answer(unix.Symlink(o.Args[1], r.path(o.Args[0])), "made")
}

func doLink(r *runner, o Op) Step {
	return answer(unix.Link(r.path(o.Args[0]), r.path(o.Args[1])), "made")
}

func doUnlink(r *runner, o Op) Step { return answer(unix.Unlink(r.path(o.Args[0])), "removed") }

func doRename(r *runner, o Op) Step {
	flags := map[string]uint{"noreplace": unix.RENAME_NOREPLACE, "exchange": unix.RENAME_EXCHANGE}[o.Args[2]]
	return answer(unix.Renameat2(unix.AT_FDCWD, r.path(o.Args[0]), unix.AT_FDCWD, r.path(o.Args[1]), flags), "renamed")
}

// doMove moves a regular file that is not open and has one name, as mv does: if the
// filesystem refuses to rename it between two devices, the file is copied.
func doMove(r *runner, o Op) Step {
	from, to := r.path(o.Args[0]), r.path(o.Args[1])
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return answer(err, "")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || r.isOpen(st.Ino) {
		return Step{Text: "in use"}
	}
	err := unix.Rename(from, to)
	if errors.Is(err, unix.EXDEV) {
		err = copyOver(from, to)
	}
	return answer(err, "moved")
}

// isOpen reports whether a slot refers to the inode. No two devices of a target share inode
// numbers.
func (r *runner) isOpen(ino uint64) bool {
	for i := range slots {
		for _, fd := range []int{r.files[i], r.maps[i].fd} {
			var st unix.Stat_t
			if fd != none && unix.Fstat(fd, &st) == nil && st.Ino == ino {
				return true
			}
		}
	}
	return false
}

// copyOver does what mv does between two filesystems: it copies content, mode and
// attributes, and then removes the old name.
func copyOver(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	if err = os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Stat(from, &st); err != nil {
		return err
	}
	names, err := xattrNames(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := xattr(from, name)
		if err == nil {
			err = unix.Lsetxattr(to, name, value, 0)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(unix.Chmod(to, st.Mode&0o7777), unix.Unlink(from))
}

// doCrash closes all handles, and then ends the process of the filesystem.
func doCrash(r *runner, _ Op) Step {
	r.closeAll()
	if r.target.Crash == nil {
		return answer(nil, "crashed")
	}
	return answer(r.target.Crash(), "crashed")
}

// below returns a path in the form that a program uses.
func below(top, dir, path string) string {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return path
	}
	return filepath.Join(top, rel)
}
