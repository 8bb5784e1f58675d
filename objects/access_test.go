package objects_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// byKey are what a user may ask for by a key alone, or by a number.
func byKey(r *keyedRig, who objects.Caller, key string, ino objects.Ino) map[string]func() error {
	h := r.store.NewHolder(who)
	r.t.Cleanup(func() {
		if err := h.Close(context.WithoutCancel(r.t.Context())); err != nil {
			r.t.Error(err)
		}
	})
	into := r.memory(1, 100, 9)
	return map[string]func() error{
		"info": func() error { _, err := h.KeyInfo(r.ctx(), key); return err },
		"read": func() error {
			mine, err := h.Adopt(r.ctx(), r.devs[1].Info().Name, into.mem)
			if err != nil {
				return err
			}
			return h.Scatter(r.ctx(), objects.Scatter{Keyed: objects.Keyed{Key: key, Blobs: []objects.Blob{{Region: mine, Len: 100}}}})
		},
		"keep":   func() error { return h.Keep(r.ctx(), ino) },
		"reach":  func() error { return r.store.MayReach(r.ctx(), who, ino) },
		"expire": func() error { return h.Expire(r.ctx(), key, r.after(1000e9)) },
		"ttl":    func() error { return r.store.SetTTL(r.ctx(), who, ino, "1000", 0) },
		"drop":   func() error { return h.Drop(r.ctx(), []string{key})[0] },
	}
}

// TestByKeyAsByPath has users ask by a key for what the path to its file, its
// mode and its directory's let them do, and for what they do not.
func TestByKeyAsByPath(t *testing.T) {
	kit.Check(t)
	const alice, bob = 1000, 1001
	const read, use, take = "info read reach ", "keep drop ", "expire ttl "
	for _, c := range []struct {
		name string
		// outer and dir are the modes of the directories that the file is in, the
		// second one dirOf's.
		outer, dir, file metadata.Mode
		dirOf            uint32
		links            int
		may              string
	}{
		{name: "all open", outer: 0o755, dir: 0o777, file: 0o666, may: read + use + take},
		{name: "to be read", outer: 0o755, dir: 0o777, file: 0o644, may: read},
		{name: "in a directory of others", outer: 0o755, dir: 0o755, file: 0o666, may: read + use},
		{name: "in a sticky directory", outer: 0o755, dir: 0o1777, file: 0o666, may: read + use},
		{name: "in his sticky directory", outer: 0o755, dir: 0o1777, file: 0o666, dirOf: bob, may: read + use + take},
		{name: "in a closed directory", outer: 0o755, dir: 0o700, file: 0o666, may: ""},
		{name: "far below a closed directory", outer: 0o700, dir: 0o777, file: 0o666, may: ""},
		{name: "below one to be listed", outer: 0o744, dir: 0o777, file: 0o644, may: ""},
		{name: "with another name", outer: 0o755, dir: 0o777, file: 0o666, links: 1, may: read + use},
		{name: "closed", outer: 0o777, dir: 0o777, file: 0o600, may: "reach"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kit.Check(t)
			r := newKeyed(t, keyedOptions{})
			root := r.root("sim0")
			of := c.dirOf
			if of == 0 {
				of = alice
			}
			make := func(dir objects.Ino, name string, n metadata.Node) objects.Ino {
				t.Helper()
				a, err := r.store.Create(r.ctx(), dir, name, n)
				if err != nil {
					t.Fatal(err)
				}
				return a.Ino
			}
			outer := make(root, "outer", metadata.Node{Mode: metadata.TypeDir | c.outer, UID: alice, GID: alice})
			dir := make(outer, "dir", metadata.Node{Mode: metadata.TypeDir | c.dir, UID: of, GID: of})
			ino := make(dir, "f", metadata.Node{Mode: metadata.TypeRegular | c.file, UID: alice, GID: alice})
			f := r.open(ino)
			r.write(f, 0, kit.Bytes(1, 0, 100))
			r.close(f)
			for i := range c.links {
				if _, err := r.store.Link(r.ctx(), ino, dir, fmt.Sprint("other ", i)); err != nil {
					t.Fatal(err)
				}
			}
			who := objects.Caller{UID: bob, GID: bob, Groups: []uint32{}}
			for what, ask := range byKey(r, who, "k", ino) {
				if err := r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte("k"), 0); err != nil {
					t.Fatal(err)
				}
				err := ask()
				if may := slices.Contains(strings.Fields(c.may), what); may != (err == nil) || err != nil && !errors.Is(err, objects.ErrForbidden) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for what, ask := range byKey(r, me(), "k", ino) {
				if err := errors.Join(r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte("k"), 0), ask()); err != nil {
					t.Errorf("%s, by root: %v", what, err)
				}
			}
		})
	}
}
