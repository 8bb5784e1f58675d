package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// person is a user of the comparison.
type person struct {
	name string
	objects.Caller
}

const (
	ownerID  = 4100
	memberID = 4200
	otherID  = 4300
)

func people() []person {
	return []person{
		{"root", objects.Caller{}},
		{"owner", objects.Caller{UID: ownerID, GID: ownerID}},
		{"member by gid", objects.Caller{UID: memberID, GID: ownerID}},
		{"member by group", objects.Caller{UID: memberID, GID: memberID, Groups: []uint32{7, ownerID}}},
		{"other", objects.Caller{UID: otherID, GID: otherID, Groups: []uint32{0}}},
	}
}

// scene is one directory "d" with a file "f", a directory "s" and a symlink "l" in it, and a
// world-writable directory "e", on both sides.
type scene struct {
	path      string // on the kernel's side
	top, d, e objects.Ino
	store     *objects.Store
	peer      *cluster.Node
	dirMode   uint32
	fileMode  uint32
	sub       uint32
	fileUID   uint32
	dirUID    uint32
}

// try is one operation, on both sides.
type try struct {
	name   string
	kernel func(c *scene) error
	ours   func(ctx context.Context, c *scene, who objects.Caller) error
}

// lookups finds d/name as a user does on the path to an inode.
func (c *scene) lookups(ctx context.Context, who objects.Caller, name string) (objects.Attr, error) {
	return c.peer.Lookup(ctx, who, c.d, name)
}

// onFile is an operation on the inode of d/f.
func onFile(fn func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error) func(context.Context, *scene, objects.Caller) error {
	return func(ctx context.Context, c *scene, who objects.Caller) error {
		a, err := c.lookups(ctx, who, "f")
		if err != nil {
			return err
		}
		return fn(ctx, c, who, a)
	}
}

func setAttr(change objects.Change) func(context.Context, *scene, objects.Caller) error {
	return onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
		_, err := c.peer.SetAttr(ctx, who, a.Ino, change, nil)
		return err
	})
}

func create(n metadata.Node) func(context.Context, *scene, objects.Caller) error {
	return func(ctx context.Context, c *scene, who objects.Caller) error {
		_, err := c.peer.Create(ctx, who, c.d, "new", n)
		return err
	}
}

func rename(from, name, to, newName string, flags metadata.RenameFlags) func(context.Context, *scene, objects.Caller) error {
	return func(ctx context.Context, c *scene, who objects.Caller) error {
		at := map[string]objects.Ino{"d": c.d, "e": c.e}
		return c.peer.Rename(ctx, who, metadata.Rename{From: at[from], Name: name, To: at[to], NewName: newName, Flags: flags})
	}
}

func tries() []try {
	f := func(c *scene) string { return filepath.Join(c.path, "d", "f") }
	at := func(c *scene, names ...string) string { return filepath.Join(append([]string{c.path}, names...)...) }
	present := metadata.Timespec{Nsec: unix.UTIME_NOW}
	past := metadata.Timespec{Sec: 5}
	return []try{
		{
			"look up", func(c *scene) error { return unix.Lstat(f(c), &unix.Stat_t{}) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				_, err := c.lookups(ctx, who, "f")
				return err
			},
		},
		{
			"list", func(c *scene) error { _, err := os.ReadDir(at(c, "d")); return err },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				_, err := c.peer.OpenDir(who, c.d).After(ctx, 0)
				return err
			},
		},
		{
			"create", func(c *scene) error { return unix.Mknod(at(c, "d", "new"), unix.S_IFREG|0o2775, 0) },
			create(metadata.Node{Mode: metadata.TypeRegular | 0o2775}),
		},
		{
			"mkdir", func(c *scene) error { return unix.Mkdir(at(c, "d", "new"), 0o755) },
			create(metadata.Node{Mode: metadata.TypeDir | 0o755}),
		},
		{
			"symlink", func(c *scene) error { return unix.Symlink("x", at(c, "d", "new")) },
			create(metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: "x"}),
		},
		{
			"fifo", func(c *scene) error { return unix.Mknod(at(c, "d", "new"), unix.S_IFIFO|0o644, 0) },
			create(metadata.Node{Mode: metadata.TypeFIFO | 0o644}),
		},
		{
			"device", func(c *scene) error { return unix.Mknod(at(c, "d", "new"), unix.S_IFCHR|0o644, 0x103) },
			create(metadata.Node{Mode: metadata.TypeChar | 0o644, Rdev: 0x103}),
		},
		{
			"unlink", func(c *scene) error { return unix.Unlink(f(c)) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				return c.peer.Unlink(ctx, who, c.d, "f")
			},
		},
		{
			"unlink symlink", func(c *scene) error { return unix.Unlink(at(c, "d", "l")) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				return c.peer.Unlink(ctx, who, c.d, "l")
			},
		},
		{
			"rmdir", func(c *scene) error { return unix.Rmdir(at(c, "d", "s")) },
			func(ctx context.Context, c *scene, who objects.Caller) error { return c.peer.Rmdir(ctx, who, c.d, "s") },
		},
		{"rename", func(c *scene) error { return unix.Rename(f(c), at(c, "d", "new")) }, rename("d", "f", "d", "new", 0)},
		{"rename over", func(c *scene) error { return unix.Rename(f(c), at(c, "d", "l")) }, rename("d", "f", "d", "l", 0)},
		{"rename away", func(c *scene) error { return unix.Rename(f(c), at(c, "e", "new")) }, rename("d", "f", "e", "new", 0)},
		{"rename directory away", func(c *scene) error { return unix.Rename(at(c, "d", "s"), at(c, "e", "new")) }, rename("d", "s", "e", "new", 0)},
		{"rename directory", func(c *scene) error { return unix.Rename(at(c, "d", "s"), at(c, "d", "new")) }, rename("d", "s", "d", "new", 0)},
		{"rename in", func(c *scene) error { return unix.Rename(at(c, "e", "x"), f(c)) }, rename("e", "x", "d", "f", 0)},
		{"exchange", func(c *scene) error {
			return unix.Renameat2(unix.AT_FDCWD, at(c, "e", "x"), unix.AT_FDCWD, at(c, "d", "s"), unix.RENAME_EXCHANGE)
		}, rename("e", "x", "d", "s", metadata.Exchange)},
		{"chmod", func(c *scene) error { return unix.Chmod(f(c), 0o2775) }, setAttr(objects.Change{Mode: new(metadata.Mode(0o2775))})},
		{"chown", func(c *scene) error { return unix.Lchown(f(c), otherID, -1) }, setAttr(objects.Change{UID: new(uint32(otherID))})},
		{
			"chown to the owner", func(c *scene) error { return unix.Lchown(f(c), int(c.fileUID), -1) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				return setAttr(objects.Change{UID: &c.fileUID})(ctx, c, who)
			},
		},
		{"chgrp", func(c *scene) error { return unix.Lchown(f(c), -1, memberID) }, setAttr(objects.Change{GID: new(uint32(memberID))})},
		{"chgrp to its group", func(c *scene) error { return unix.Lchown(f(c), -1, ownerID) }, setAttr(objects.Change{GID: new(uint32(ownerID))})},
		{"cut", func(c *scene) error { return unix.Truncate(f(c), 1) }, setAttr(objects.Change{Size: new(uint64(1))})},
		{"touch", func(c *scene) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, f(c), []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0)
		}, setAttr(objects.Change{Atime: &present, Mtime: &present})},
		{"set times", func(c *scene) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, f(c), []unix.Timespec{{Sec: 5}, {Sec: 5}}, 0)
		}, setAttr(objects.Change{Atime: &past, Mtime: &past})},
		{"set one time", func(c *scene) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, f(c), []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 5}}, 0)
		}, setAttr(objects.Change{Mtime: &past})},
		{
			"get attribute", func(c *scene) error { _, err := unix.Lgetxattr(f(c), "user.a", make([]byte, 9)); return err },
			onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
				_, err := c.peer.GetXattr(ctx, who, a.Ino, "user.a")
				return err
			}),
		},
		{
			"set attribute", func(c *scene) error { return unix.Lsetxattr(f(c), "user.b", []byte("x"), 0) },
			onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
				return c.peer.SetXattr(ctx, who, a.Ino, objects.Xattr{Name: "user.b", Value: []byte("x")})
			}),
		},
		{
			"remove attribute", func(c *scene) error { return unix.Lremovexattr(f(c), "user.a") },
			onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
				return c.peer.RemoveXattr(ctx, who, a.Ino, "user.a")
			}),
		},
		{
			"set attribute of a symlink", func(c *scene) error { return unix.Lsetxattr(at(c, "d", "l"), "user.b", []byte("x"), 0) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				a, err := c.lookups(ctx, who, "l")
				if err != nil {
					return err
				}
				return c.peer.SetXattr(ctx, who, a.Ino, objects.Xattr{Name: "user.b", Value: []byte("x")})
			},
		},
		{
			"set attribute of the directory", func(c *scene) error { return unix.Lsetxattr(at(c, "d"), "user.b", []byte("x"), 0) },
			func(ctx context.Context, c *scene, who objects.Caller) error {
				return c.peer.SetXattr(ctx, who, c.d, objects.Xattr{Name: "user.b", Value: []byte("x")})
			},
		},
		{"open to write", func(c *scene) error { return openClose(f(c), unix.O_WRONLY) }, openOurs(objects.PermWrite)},
		{"open to read", func(c *scene) error { return openClose(f(c), unix.O_RDONLY) }, openOurs(objects.PermRead)},
		{"write", func(c *scene) error {
			file, err := os.OpenFile(f(c), os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteString("x")
				err = errors.Join(err, file.Close())
			}
			return err
		}, onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
			file, err := c.peer.Open(ctx, who, a.Ino, objects.PermWrite)
			if err == nil {
				_, err = file.WriteAt(ctx, []byte("x"), objects.Write{})
				err = errors.Join(err, file.Close(ctx))
			}
			return err
		})},
	}
}

func openClose(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func openOurs(access objects.Permission) func(context.Context, *scene, objects.Caller) error {
	return onFile(func(ctx context.Context, c *scene, who objects.Caller, a objects.Attr) error {
		file, err := c.peer.Open(ctx, who, a.Ino, access)
		if err == nil {
			err = file.Close(ctx)
		}
		return err
	})
}

// errnoOf returns the errno that fs returns for our errors, as far as they occur here.
func errnoOf(err error) syscall.Errno {
	for _, r := range []struct {
		err   error
		errno syscall.Errno
	}{
		{nil, 0},
		{cluster.ErrDenied, unix.EACCES},
		{objects.ErrForbidden, unix.EPERM},
		{metadata.ErrPermission, unix.EPERM},
		{metadata.ErrNotEmpty, unix.ENOTEMPTY},
		{metadata.ErrNotExist, unix.ENOENT},
		{metadata.ErrNoXattr, unix.ENODATA},
	} {
		if errors.Is(err, r.err) {
			return r.errno
		}
	}
	number := syscall.Errno(0)
	if errors.As(err, &number) {
		return number
	}
	return unix.EIO
}

// as runs fn with the file permissions of a user.
func as(who person, fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		groups := make([]int, len(who.Groups))
		for i, g := range who.Groups {
			groups[i] = int(g)
		}
		was, failure := syscall.Getgroups()
		if err = failure; err != nil {
			return
		}
		if err = syscall.Setgroups(groups); err != nil {
			return
		}
		defer func() { err = errors.Join(err, syscall.Setgroups(was)) }()
		if err = unix.Setfsgid(int(who.GID)); err == nil {
			err = unix.Setfsuid(int(who.UID))
		}
		if err == nil {
			err = fn()
		}
		_ = unix.Setfsuid(0) // the thread is not used again
	}()
	<-done
	return err
}

// make builds the scene on both sides.
func (c *scene) make(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := func(names ...string) string { return filepath.Join(append([]string{c.path}, names...)...) }
	check(os.Mkdir(c.path, 0o755))
	for _, d := range []struct {
		path string
		uid  uint32
		mode uint32
	}{{p("d"), c.dirUID, c.dirMode}, {p("e"), 0, 0o777}, {p("d", "s"), c.fileUID, c.sub}} {
		check(os.Mkdir(d.path, 0o755))
		check(os.Chown(d.path, int(d.uid), ownerID))
		check(unix.Chmod(d.path, d.mode))
	}
	for _, file := range []string{p("d", "f"), p("e", "x")} {
		check(os.WriteFile(file, []byte("hello"), 0o600))
		check(unix.Lsetxattr(file, "user.a", []byte("1"), 0))
		check(os.Chown(file, int(c.fileUID), ownerID))
		check(unix.Chmod(file, c.fileMode))
	}
	check(os.Symlink("x", p("d", "l")))
	check(os.Lchown(p("d", "l"), int(c.fileUID), ownerID))

	made := func(dir objects.Ino, name string, n metadata.Node) objects.Ino {
		t.Helper()
		a, err := c.store.Create(ctx, dir, name, n)
		check(err)
		return a.Ino
	}
	dir := func(at objects.Ino, name string, uid, mode uint32) objects.Ino {
		return made(at, name, metadata.Node{Mode: metadata.TypeDir | metadata.Mode(mode), UID: uid, GID: ownerID})
	}
	base := dir(c.top, filepath.Base(c.path), 0, 0o755)
	c.d, c.e = dir(base, "d", c.dirUID, c.dirMode&^0o2000), dir(base, "e", 0, 0o777)
	dir(c.d, "s", c.fileUID, c.sub)
	for i, at := range []objects.Ino{c.d, c.e} {
		ino := made(at, []string{"f", "x"}[i], metadata.Node{
			Mode: metadata.TypeRegular | metadata.Mode(c.fileMode), UID: c.fileUID, GID: ownerID,
		})
		check(c.store.SetXattr(ctx, ino, "user.a", []byte("1"), 0))
		f, err := c.store.OpenFile(ctx, ino)
		check(err)
		_, err = f.WriteAt(ctx, []byte("hello"), objects.Write{})
		check(errors.Join(err, f.Close(ctx)))
	}
	made(c.d, "l", metadata.Node{Mode: metadata.TypeSymlink | 0o777, UID: c.fileUID, GID: ownerID, Target: "x"})
	_, err := c.store.SetAttr(ctx, c.d, objects.Change{Mode: new(metadata.Mode(c.dirMode))})
	check(err)
}

// facts returns the modes and owners of everything in a scene, on both sides.
func (c *scene) facts(t *testing.T) (kernel, ours string) {
	t.Helper()
	for _, name := range []string{"d", "d/f", "d/l", "d/s", "d/new", "e/new", "e/x"} {
		var st unix.Stat_t
		kernel += " " + name
		if err := unix.Lstat(filepath.Join(c.path, name), &st); err == nil {
			kernel += fmt.Sprintf("=%o:%d:%d", st.Mode, st.Uid, st.Gid)
		}
		ours += " " + name
		at, base := c.d, filepath.Base(name)
		if name[0] == 'e' {
			at = c.e
		}
		a, err := c.store.Lookup(t.Context(), at, base)
		if name == "d" {
			a, err = c.store.Attr(t.Context(), c.d)
		}
		if err == nil {
			ours += fmt.Sprintf("=%o:%d:%d", uint32(a.Mode), a.UID, a.GID)
		}
	}
	return kernel, ours
}

// byOwner reports whether an operation is permitted to the owner of a file beyond its mode,
// since the user's own kernel has checked that.
func byOwner(name string) bool {
	return name == "open to write" || name == "open to read" || name == "write"
}

// TestPermissionsAreTheKernels carries out operations of users of another node with modes of
// all kinds, and the same ones in a directory of the kernel's: each result is the same, and so
// is the state afterwards.
func TestPermissionsAreTheKernels(t *testing.T) {
	kit.Require(t, "root")
	kit.Check(t)
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	w := clustertest.New(t, clustertest.Options{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	all := tries()
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o755); err != nil { //nolint:gosec // other users must be able to traverse it
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(parent), 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	for dir := filepath.Dir(parent); dir != "/"; dir = filepath.Dir(dir) {
		if s, err := os.Stat(dir); err != nil || s.Mode().Perm()&0o001 == 0 {
			t.Skipf("others can't come through %s, %v; use another TMPDIR", dir, err)
		}
	}
	if err := unix.Lsetxattr(parent, "user.a", []byte("1"), 0); err != nil {
		t.Skipf("the kernel's directory takes no attributes: %v", err)
	}
	modes := []uint32{0o700, 0o070, 0o007, 0o500, 0o300, 0o100, 0o050, 0o030, 0o005, 0o003, 0o777, 0o755, 0o1777, 0o1770, 0o2775, 0o3777, 0}
	files := []uint32{0o600, 0o060, 0o006, 0o400, 0o200, 0o040, 0o020, 0o004, 0o002, 0o644, 0o4755, 0o2755, 0o6777, 0}
	owners := []uint32{0, ownerID, otherID}
	const rounds = 500
	for round := range rounds {
		c := &scene{
			path: filepath.Join(parent, fmt.Sprintf("scene%d", round)), top: w.Node("b").Dir("sim0"),
			store: w.Node("b").Store, peer: w.Peer("a", "b"),
			dirMode: modes[random.IntN(len(modes))], fileMode: files[random.IntN(len(files))],
			sub: []uint32{0o755, 0o500, 0o777}[random.IntN(3)], fileUID: owners[random.IntN(len(owners))], dirUID: owners[random.IntN(len(owners))],
		}
		c.make(t)
		op, who := all[round%len(all)], people()[random.IntN(len(people()))]
		what := fmt.Sprintf("%s by %s: d=%o of %d, f=%o of %d, s=%o", op.name, who.name, c.dirMode, c.dirUID, c.fileMode, c.fileUID, c.sub)
		there := errnoOf(as(who, func() error { return op.kernel(c) }))
		err := op.ours(t.Context(), c, who.Caller)
		if here := errnoOf(err); here != there {
			if byOwner(op.name) && here == 0 && (who.UID == c.fileUID || op.name == "open to read") {
				continue
			}
			t.Errorf("%s: %v, and the kernel says %v (%v)", what, here, there, err)
			continue
		}
		if kernel, ours := c.facts(t); kernel != ours {
			t.Errorf("%s: left\n%s, and the kernel\n%s", what, ours, kernel)
		}
		if err := os.RemoveAll(c.path); err != nil {
			t.Fatal(err)
		}
	}
}
