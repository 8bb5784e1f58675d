package copier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// modeOf returns the mode for a target. The set-ID bits are kept only with the owner: the target's may be
// a different one.
func (c *copier) modeOf(info fs.FileInfo) fs.FileMode {
	kept := fs.ModePerm
	if c.opts.Preserve {
		kept |= fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	}
	return info.Mode() & kept
}

// finish sets the target's mode, and the rest of what is kept.
func (c *copier) finish(src, dst *os.File, info fs.FileInfo) error {
	mode := c.modeOf(info)
	if c.opts.Preserve {
		if uid, gid, is := ownerOf(info); is && ignorable(dst.Chown(uid, gid)) != nil {
			mode &= fs.ModePerm
		}
	}
	if err := ignorable(dst.Chmod(mode)); err != nil {
		return err
	}
	if c.opts.Archive {
		copyAttributes(fmt.Sprintf("/proc/self/fd/%d", src.Fd()), fmt.Sprintf("/proc/self/fd/%d", dst.Fd()))
	}
	if !c.opts.Preserve {
		return nil
	}
	// The descriptor is the target also if its name is another file's now.
	at, mt := timesOf(info)
	err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", dst.Fd()), timespecs(at, mt), 0)
	return timesError(dst.Name(), ignorable(err))
}

// settle is finish for what has no descriptor: directories, links, and files that are not reached through
// the kernel.
func (c *copier) settle(j job) error {
	tree, name, mode := j.target.tree, j.target.name, c.modeOf(j.info)
	isLink := j.info.Mode()&fs.ModeSymlink != 0
	if isLink && !j.target.isLocal() {
		return nil // the session would change what the link leads to
	}
	if c.opts.Preserve {
		if uid, gid, is := ownerOf(j.info); is && tree.Chown(name, uid, gid) != nil {
			mode &= fs.ModePerm
		}
	}
	if !isLink {
		if err := ignorable(tree.Chmod(name, mode)); err != nil {
			return err
		}
	}
	if c.opts.Archive && !isLink {
		c.keepAttributes(j)
	}
	if !c.opts.Preserve {
		return nil
	}
	if _, _, is := ownerOf(j.info); !is {
		return nil // standard input has no times
	}
	at, mt := timesOf(j.info)
	return ignorable(tree.Chtimes(name, at, mt))
}

// ignorable returns an error, unless it only says that a file of another user's, that we may write, keeps
// what it has.
func ignorable(err error) error {
	if errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

func ownerOf(info fs.FileInfo) (uid, gid int, is bool) {
	sys, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, 0, false
	}
	return int(sys.Uid), int(sys.Gid), true
}

func timesOf(info fs.FileInfo) (at, mt time.Time) {
	at, mt = info.ModTime(), info.ModTime()
	if sys, is := info.Sys().(*syscall.Stat_t); is {
		at = time.Unix(sys.Atim.Unix())
	}
	return at, mt
}

// ownPrefix begins the names of the attributes that hmcfs makes. Those that describe tensors are copied
// anyway.
const ownPrefix = "user.hmc."

// copyAttributes copies the user's extended attributes between files of the kernel, as far as the target
// can have them.
func copyAttributes(from, to string) {
	names := make([]byte, 64<<10)
	n, err := unix.Listxattr(from, names)
	if err != nil {
		return
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, ownPrefix) {
			continue
		}
		if n, err := unix.Getxattr(from, name, value); err == nil {
			unix.Setxattr(to, name, value[:n], 0) //nolint:errcheck // not every file system has attributes, and the bytes matter more
		}
	}
}

// keepAttributes is copyAttributes for a job.
func (c *copier) keepAttributes(j job) {
	if j.source.isLocal() && j.target.isLocal() {
		copyAttributes(j.source.name, j.target.name)
		return
	}
	from, to := attributed(j.source), attributed(j.target)
	if from == nil || to == nil {
		return
	}
	names, _ := from.Attributes(j.source.name) // a file system may have none
	for _, name := range slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "user.") || strings.HasPrefix(n, ownPrefix) }) {
		if value, err := from.Attribute(j.source.name, name); err == nil {
			_ = to.SetAttribute(j.target.name, name, value) // the bytes matter more
		}
	}
}

// withAttributes is a tree whose files have extended attributes.
type withAttributes interface {
	Attribute(name, attribute string) ([]byte, error)
	Attributes(name string) ([]string, error)
	SetAttribute(name, attribute string, value []byte) error
}

// attributed returns the tree of a file if its files have extended attributes, else nil.
func attributed(s spot) withAttributes {
	tree, is := s.tree.(withAttributes)
	if !is {
		return nil
	}
	return tree
}
