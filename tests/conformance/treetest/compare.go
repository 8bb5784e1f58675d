package treetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Rooted is a tree and an empty directory in it, below which operations are performed.
type Rooted struct {
	Name string
	Tree objects.Tree
	Root objects.Ino
}

// Compare performs n random operations, derived from a seed, in each of the trees, as root. It
// reports the first one whose result differs, with the operations that led to it.
func Compare(t *testing.T, trees []Rooted, seed uint64, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]*walker, len(trees))
	for i, tree := range trees {
		all[i] = &walker{Rooted: tree, ctx: t.Context(), open: map[int]objects.OpenFile{}}
	}
	defer func() {
		for _, w := range all {
			w.closeAll(t)
		}
	}()
	var done []string
	for range n {
		o := operations()[r.IntN(len(operations()))]
		a := arguments{path: path(r), other: path(r), n: r.IntN(1 << 30), seed: r.Uint64()}
		done = append(done, fmt.Sprintf("%s %s %s %d", o.name, a.path, a.other, a.n))
		var want string
		for i, w := range all {
			got := o.do(w, a)
			if i == 0 {
				want = got
				continue
			}
			if got != want {
				t.Fatalf("seed %d: %s:\n%s: %s\n%s: %s\nbehind:\n%s", seed, done[len(done)-1], all[0].Name, want, w.Name, got, strings.Join(done, "\n"))
			}
		}
	}
}

// arguments are the arguments of an operation.
type arguments struct {
	path, other string
	n           int
	seed        uint64
}

// path returns a random path of up to three names.
func path(r *rand.Rand) string {
	names := make([]string, 1+r.IntN(3))
	for i := range names {
		names[i] = string(rune('a' + r.IntN(4)))
	}
	return strings.Join(names, "/")
}

// walker performs operations in one tree.
type walker struct {
	Rooted

	ctx context.Context //nolint:containedctx // the test's
	// open holds files that stay open, by slot.
	open map[int]objects.OpenFile
}

func (w *walker) closeAll(t *testing.T) {
	for _, f := range w.open {
		if err := f.Close(context.WithoutCancel(w.ctx)); err != nil {
			t.Errorf("%s: close: %v", w.Name, err)
		}
	}
}

// who returns root.
func (*walker) who() objects.Caller { return objects.Caller{} }

// find looks a path up.
func (w *walker) find(path string) (a objects.Attr, err error) {
	a.Ino = w.Root
	for name := range strings.SplitSeq(path, "/") {
		if a, err = w.Tree.Lookup(w.ctx, w.who(), a.Ino, name); err != nil {
			return a, err
		}
	}
	return a, nil
}

// dir looks up the directory of a path.
func (w *walker) dir(path string) (dir objects.Ino, name string, err error) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return w.Root, path, nil
	}
	a, err := w.find(path[:i])
	return a.Ino, path[i+1:], err
}

// result describes an outcome: of an error only the sentinel, since texts contain inode numbers.
func result(err error, format string, args ...any) string {
	if err == nil {
		return fmt.Sprintf(format, args...)
	}
	for _, known := range []error{
		metadata.ErrNotExist, metadata.ErrExist, metadata.ErrNotDir, metadata.ErrIsDir, metadata.ErrNotEmpty,
		metadata.ErrNoXattr, metadata.ErrInvalid, metadata.ErrPermission, metadata.ErrCrossDevice, metadata.ErrRange,
		metadata.ErrTooLarge, objects.ErrInvalid, objects.ErrNoData, objects.ErrUnsupported, objects.ErrForbidden,
		objects.ErrBusy, objects.ErrTooLarge, objects.ErrReadOnly,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// facts returns the attributes of an inode that all trees must report alike. The time of the last
// access is not among them: another node may report the one before a read for a moment.
func facts(a *objects.Attr) string {
	set := func(ts metadata.Timespec) any {
		if ts.Sec < 2_000_000 { // one that an operation has set
			return ts
		}
		return "now"
	}
	return fmt.Sprintf("mode %o links %d owner %d:%d size %d target %q rdev %d changed %v state %s device %s",
		a.Mode, a.Nlink, a.UID, a.GID, a.Size, a.Target, a.Rdev, set(a.Mtime), a.State, a.Device)
}

// operation is an operation that Compare can choose.
type operation struct {
	name string
	do   func(w *walker, a arguments) string
}

func operations() []operation {
	return slices.Concat(nameOperations(), inodeOperations(), fileOperations())
}

func nameOperations() []operation {
	create := func(n func(a arguments) metadata.Node) func(w *walker, a arguments) string {
		return func(w *walker, a arguments) string {
			dir, name, err := w.dir(a.path)
			if err != nil {
				return result(err, "")
			}
			got, err := w.Tree.Create(w.ctx, w.who(), dir, name, n(a))
			return result(err, "%s", facts(&got))
		}
	}
	remove := func(by func(w *walker, dir objects.Ino, name string) error) func(w *walker, a arguments) string {
		return func(w *walker, a arguments) string {
			dir, name, err := w.dir(a.path)
			if err == nil {
				err = by(w, dir, name)
			}
			return result(err, "removed")
		}
	}
	file := create(func(a arguments) metadata.Node {
		return metadata.Node{Mode: metadata.TypeRegular | metadata.Mode(a.n)&0o777}
	})
	folder := create(func(a arguments) metadata.Node {
		return metadata.Node{Mode: metadata.TypeDir | metadata.Mode(a.n)&0o2777}
	})
	return []operation{
		{"create", file},
		{"create", file},
		{"mkdir", folder},
		{"mkdir", folder},
		{"symlink", create(func(a arguments) metadata.Node {
			return metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: a.other}
		})},
		{"mkfifo", create(func(arguments) metadata.Node { return metadata.Node{Mode: metadata.TypeFIFO | 0o600} })},
		{"unlink", remove(func(w *walker, dir objects.Ino, name string) error {
			return w.Tree.Unlink(w.ctx, w.who(), dir, name)
		})},
		{"rmdir", remove(func(w *walker, dir objects.Ino, name string) error {
			return w.Tree.Rmdir(w.ctx, w.who(), dir, name)
		})},
		{"link", func(w *walker, a arguments) string {
			what, err := w.find(a.path)
			if err != nil {
				return result(err, "")
			}
			dir, name, err := w.dir(a.other)
			if err == nil {
				what, err = w.Tree.Link(w.ctx, w.who(), what.Ino, dir, name)
			}
			return result(err, "%s", facts(&what))
		}},
		{"rename", func(w *walker, a arguments) string {
			from, name, err := w.dir(a.path)
			if err != nil {
				return result(err, "")
			}
			to, newName, err := w.dir(a.other)
			if err == nil {
				_, err = w.Tree.Rename(w.ctx, w.who(), metadata.Rename{
					From: from, Name: name, To: to, NewName: newName, Flags: metadata.RenameFlags(a.n % 3),
				})
			}
			return result(err, "renamed")
		}},
		{"list", func(w *walker, a arguments) string {
			dir, _, err := w.dir(a.path)
			if err != nil {
				return result(err, "")
			}
			names, err := w.list(dir)
			return result(err, "%q", names)
		}},
	}
}

// list reads a directory to its end.
func (w *walker) list(ino objects.Ino) (names []string, err error) {
	dir, err := w.Tree.OpenDir(w.ctx, w.who(), ino)
	if err != nil {
		return nil, err
	}
	for at := metadata.Cookie(0); ; {
		page, err := dir.After(w.ctx, at, 3)
		if err != nil || len(page) == 0 {
			slices.Sort(names)
			return names, err
		}
		for _, e := range page {
			names, at = append(names, fmt.Sprintf("%s %o", e.Name, e.Type)), e.Cookie
		}
	}
}

func inodeOperations() []operation {
	about := func(do func(w *walker, a arguments, ino objects.Ino) string) func(w *walker, a arguments) string {
		return func(w *walker, a arguments) string {
			at, err := w.find(a.path)
			if err != nil {
				return result(err, "")
			}
			return do(w, a, at.Ino)
		}
	}
	change := func(c func(a arguments) objects.Change) func(w *walker, a arguments) string {
		return about(func(w *walker, a arguments, ino objects.Ino) string {
			got, err := w.Tree.SetAttr(w.ctx, w.who(), ino, c(a), nil)
			return result(err, "%s", facts(&got))
		})
	}
	// The kernel passes user attributes to a tree only for files and directories.
	attribute := func(do func(w *walker, a arguments, ino objects.Ino) string) func(w *walker, a arguments) string {
		return func(w *walker, a arguments) string {
			at, err := w.find(a.path)
			switch {
			case err != nil:
				return result(err, "")
			case !at.IsRegular() && !at.IsDir():
				return "no file and no directory"
			}
			return do(w, a, at.Ino)
		}
	}
	name := func(a arguments) string { return "user." + string(rune('a'+a.n%3)) }
	return []operation{
		{"stat", about(func(w *walker, _ arguments, ino objects.Ino) string {
			got, err := w.Tree.Attr(w.ctx, w.who(), ino)
			return result(err, "%s", facts(&got))
		})},
		{"chmod", change(func(a arguments) objects.Change {
			return objects.Change{Mode: new(metadata.Mode(a.n) & 0o777)}
		})},
		{"chown", change(func(a arguments) objects.Change {
			return objects.Change{UID: new(uint32(a.n % 5)), GID: new(uint32(a.n % 7))}
		})},
		{"truncate", change(func(a arguments) objects.Change { return objects.Change{Size: new(uint64(a.n % 100_000))} })},
		{"utimes", change(func(a arguments) objects.Change {
			c := objects.Change{Atime: &metadata.Timespec{Sec: int64(a.n % 1_000_000)}, Mtime: &metadata.Timespec{Nsec: unix.UTIME_NOW}}
			if a.n%2 == 0 {
				c.Atime, c.Mtime = c.Mtime, c.Atime
			}
			return c
		})},
		{"setxattr", attribute(func(w *walker, a arguments, ino objects.Ino) string {
			x := objects.Xattr{Name: name(a), Value: kit.Bytes(a.seed, 0, a.n%300), Flags: metadata.XattrFlags(a.n % 3)}
			return result(w.Tree.SetXattr(w.ctx, w.who(), ino, x), "set")
		})},
		{"getxattr", attribute(func(w *walker, a arguments, ino objects.Ino) string {
			value, err := w.Tree.GetXattr(w.ctx, w.who(), ino, name(a))
			return result(err, "%x", value)
		})},
		{"listxattr", attribute(func(w *walker, _ arguments, ino objects.Ino) string {
			names, err := w.Tree.ListXattr(w.ctx, w.who(), ino)
			slices.Sort(names)
			return result(err, "%q", names)
		})},
		{"removexattr", attribute(func(w *walker, a arguments, ino objects.Ino) string {
			return result(w.Tree.RemoveXattr(w.ctx, w.who(), ino, name(a)), "removed")
		})},
		{"statfs", about(func(w *walker, _ arguments, ino objects.Ino) string {
			u, err := w.Tree.StatFS(w.ctx, w.who(), ino)
			return result(err, "of %d bytes", u.Total)
		})},
	}
}

// slots is the number of files that stay open.
const slots = 4

func fileOperations() []operation {
	opened := func(do func(w *walker, a arguments, f objects.OpenFile) string) func(w *walker, a arguments) string {
		return func(w *walker, a arguments) string {
			f := w.open[a.n%slots]
			if f == nil {
				return "none is open"
			}
			return do(w, a, f)
		}
	}
	write := opened(func(w *walker, a arguments, f objects.OpenFile) string {
		off := uint64(a.n % 200_000)
		n, err := f.WriteAt(w.ctx, kit.Bytes(a.seed, int64(off), 1+a.n%30_000), objects.Write{Off: off, Append: a.n%5 == 0})
		return result(err, "%d bytes", n)
	})
	read := opened(func(w *walker, a arguments, f objects.OpenFile) string {
		p := make([]byte, 1+a.n%50_000)
		n, err := f.Peek(w.ctx, p, uint64(a.n%150_000))
		if n > 0 {
			f.Accessed()
		}
		return result(err, "%x", p[:n])
	})
	return []operation{
		{"open", func(w *walker, a arguments) string {
			at, err := w.find(a.path)
			if err != nil {
				return result(err, "")
			}
			f, err := w.Tree.Open(w.ctx, w.who(), at.Ino, objects.PermRead|objects.PermWrite)
			return w.keep(a, f, err)
		}},
		{"create and open", func(w *walker, a arguments) string {
			dir, name, err := w.dir(a.path)
			if err != nil {
				return result(err, "")
			}
			_, f, err := w.Tree.CreateOpen(w.ctx, w.who(), dir, name, objects.NewFile{
				Mode: metadata.Mode(a.n) & 0o777, Want: objects.PermRead | objects.PermWrite,
			})
			return w.keep(a, f, err)
		}},
		{"write", write},
		{"write", write},
		{"write", write},
		{"read", read},
		{"read", read},
		{"read", read},
		{"allocate", opened(func(w *walker, a arguments, f objects.OpenFile) string {
			mode := []objects.AllocateMode{objects.AllocateExtend, objects.AllocateKeepSize, objects.AllocatePunch, objects.AllocateZero, objects.AllocateZeroKeepSize}[a.n%5]
			return result(f.Allocate(w.ctx, mode, uint64(a.n%100_000), uint64(1+a.n%50_000)), "done")
		})},
		{"size", opened(func(w *walker, _ arguments, f objects.OpenFile) string {
			return result(f.Sync(w.ctx), "%d bytes", f.Size())
		})},
		{"cut", opened(func(w *walker, a arguments, f objects.OpenFile) string {
			got, err := w.Tree.SetAttr(w.ctx, w.who(), f.Ino(), objects.Change{Size: new(uint64(a.n % 100_000))}, f)
			return result(err, "%s", facts(&got))
		})},
	}
}

// keep puts an open file into its slot, and closes the file that was there.
func (w *walker) keep(a arguments, f objects.OpenFile, err error) string {
	if err != nil {
		return result(err, "")
	}
	was := w.open[a.n%slots]
	w.open[a.n%slots] = f
	if was != nil {
		err = was.Close(w.ctx)
	}
	return result(err, "open")
}
