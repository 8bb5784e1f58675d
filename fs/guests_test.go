package fs

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// between calls its function before the request that opens, removes or renames a name: after the
// guest has looked the name up.
type between struct {
	fuse.RawFileSystem
	call func()
}

func (b *between) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	b.call()
	return b.RawFileSystem.Open(cancel, in, out)
}

func (b *between) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	b.call()
	return b.RawFileSystem.Unlink(cancel, h, name)
}

func (b *between) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	b.call()
	return b.RawFileSystem.Rmdir(cancel, h, name)
}

func (b *between) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	b.call()
	return b.RawFileSystem.Rename(cancel, in, from, to)
}

// guestsOf are three users of one directory that everybody may write, and that is sticky.
type guestsOf struct {
	t *testing.T
	*Files
	root, thief, victim *Guest
}

const (
	sticky    = "sim0/tmp/"
	elsewhere = "sim1/x"
)

func newGuests(t *testing.T) *guestsOf {
	t.Helper()
	g := &guestsOf{t: t, Files: &Files{newRig(t).filesystem}}
	g.fs.kernel = noKernel{}
	g.root = g.Begin(objects.Caller{Groups: []uint32{}})
	g.thief = g.Begin(objects.Caller{UID: 1001, GID: 1001, Groups: []uint32{}})
	g.victim = g.Begin(objects.Caller{UID: 1002, GID: 1002, Groups: []uint32{}})
	g.ok(g.root.Mkdir(t.Context(), "sim0/tmp", 0o777))
	g.ok(g.root.Change(t.Context(), "sim0/tmp", true, objects.Change{Mode: new(metadata.Mode(0o1777))}))
	g.ok(g.root.Change(t.Context(), "sim1", true, objects.Change{Mode: new(metadata.Mode(0o777))}))
	return g
}

func (g *guestsOf) ok(err error) {
	g.t.Helper()
	must(g.t, err)
}

// file makes a file of a user in the sticky directory, dir a directory.
func (g *guestsOf) file(by *Guest, name string) {
	g.t.Helper()
	o, err := by.Open(g.t.Context(), sticky+name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY, 0o666)
	g.ok(err)
	o.Close()
}

func (g *guestsOf) dir(by *Guest, name string) {
	g.t.Helper()
	g.ok(by.Mkdir(g.t.Context(), sticky+name, 0o777))
}

func (g *guestsOf) remove(name string) {
	g.t.Helper()
	g.ok(g.root.Remove(g.t.Context(), sticky+name, RemoveAny))
}

// TestStickyBetween gives a name, after a user's call has looked it up and before the call changes
// it, to the file of another user, which the user may neither remove nor move in a sticky directory.
func TestStickyBetween(t *testing.T) {
	g := newGuests(t)
	rename := func(from, to string, flags metadata.RenameFlags) func(context.Context) error {
		return func(ctx context.Context) error { return g.thief.Rename(ctx, sticky+from, sticky+to, flags) }
	}
	replaced := func(name string, make func(*Guest, string)) func() {
		return func() {
			g.remove(name)
			make(g.victim, name)
		}
	}
	for _, c := range []struct {
		name     string
		mine     []string // the user's files
		dirs     []string // the user's directories
		meantime func()
		kept     string // the name of the other user
		call     func(context.Context) error
	}{
		{"remove", []string{"x"}, nil, replaced("x", g.file), "x", func(ctx context.Context) error {
			return g.thief.Remove(ctx, sticky+"x", RemoveAny)
		}},
		{"remove a directory", nil, []string{"x"}, replaced("x", g.dir), "x", func(ctx context.Context) error {
			return g.thief.Remove(ctx, sticky+"x", RemoveDir)
		}},
		{"move", []string{"x"}, nil, replaced("x", g.file), "x", rename("x", "y", 0)},
		{"move to another directory", []string{"x"}, []string{"d"}, replaced("x", g.file), "x", rename("x", "d/x", 0)},
		{"move a directory", nil, []string{"x"}, replaced("x", g.dir), "x", rename("x", "y", 0)},
		{"replace", []string{"x", "y"}, nil, replaced("y", g.file), "y", rename("x", "y", 0)},
		{"replace what was not there", []string{"x"}, nil, func() { g.file(g.victim, "y") }, "y", rename("x", "y", 0)},
		{"move to another device", []string{"x"}, nil, replaced("x", g.file), "x", func(ctx context.Context) error {
			return g.thief.Rename(ctx, sticky+"x", elsewhere, 0)
		}},
		{"exchange", []string{"x", "y"}, nil, replaced("y", g.file), "y", rename("x", "y", metadata.Exchange)},
		{"exchange the first", []string{"x", "y"}, nil, replaced("x", g.file), "x", rename("x", "y", metadata.Exchange)},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range c.mine {
				g.file(g.thief, name)
			}
			for _, name := range c.dirs {
				g.dir(g.thief, name)
			}
			g.thief.raw = &between{g.fs, c.meantime}
			if err := c.call(t.Context()); !errors.Is(err, syscall.EPERM) {
				t.Errorf("the call returned %v, not EPERM", err)
			}
			if st, err := g.root.Stat(t.Context(), sticky+c.kept, false); err != nil || st.Uid != g.victim.UID {
				t.Errorf("%s is %v of user %d", c.kept, err, st.Uid)
			}
			for _, name := range []string{"x", "y", "d/x", "d"} {
				err := g.root.Remove(t.Context(), sticky+name, RemoveAny)
				if err != nil && !errors.Is(err, syscall.ENOENT) {
					t.Error(err)
				}
			}
		})
	}
}

// TestPublishedIsOpenedOnce has two calls of one session find a published file, of which another user
// receives it before either opens it: both would have received it, too.
func TestPublishedIsOpenedOnce(t *testing.T) {
	g := newGuests(t)
	session, other := g.root, g.Begin(objects.Caller{Groups: []uint32{}})
	g.file(other, "f")
	g.ok(other.Rename(t.Context(), sticky+"f", "publish/f", 0))
	open := func() {
		o, err := session.Open(t.Context(), "publish/f", syscall.O_RDONLY, 0)
		if err == nil {
			o.Close()
		}
		if !errors.Is(err, syscall.ENOENT) {
			t.Errorf("the open of a file that was received meanwhile returned %v, not ENOENT", err)
		}
	}
	found := 0
	session.raw = &between{g.fs, func() {
		switch found++; found {
		case 1:
			open()
		case 2:
			g.ok(other.Rename(t.Context(), "publish/f", sticky+"f", 0))
		}
	}}
	open()
	o, err := session.Open(t.Context(), sticky+"f", syscall.O_RDONLY, 0)
	g.ok(err)
	o.Close()
}
