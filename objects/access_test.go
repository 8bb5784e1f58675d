package objects_test

import (
	"cmp"
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

// byKey lists the operations that a user may request by a key alone, or by a number.
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

// askedByKey is a file of Alice's on which Bob requests operations by its key. outer
// and dir are the modes of the directories that the file is in, the second one dirOf's.
type askedByKey struct {
	name             string
	outer, dir, file metadata.Mode
	dirOf            uint32
	links            int
	may              string
}

const alice, bob = 1000, 1001

// TestByKeyAsByPath has users request operations by a key that the path to its file,
// its mode and its directory's permit, and others that they do not.
func TestByKeyAsByPath(t *testing.T) {
	kit.Check(t)
	const read, use, take = "info read reach ", "keep drop ", "expire ttl "
	for _, c := range []askedByKey{
		{name: "all open", outer: 0o755, dir: 0o777, file: 0o666, may: read + use + take},
		{name: "to be read", outer: 0o755, dir: 0o777, file: 0o644, may: read},
		{name: "in a directory of others", outer: 0o755, dir: 0o755, file: 0o666, may: read + use},
		{name: "in a sticky directory", outer: 0o755, dir: 0o1777, file: 0o666, may: read + use},
		{name: "in the asker's sticky directory", outer: 0o755, dir: 0o1777, file: 0o666, dirOf: bob, may: read + use + take},
		{name: "in a closed directory", outer: 0o755, dir: 0o700, file: 0o666, may: ""},
		{name: "far below a closed directory", outer: 0o700, dir: 0o777, file: 0o666, may: ""},
		{name: "below one to be listed", outer: 0o744, dir: 0o777, file: 0o644, may: ""},
		{name: "with another name", outer: 0o755, dir: 0o777, file: 0o666, links: 1, may: read + use},
		{name: "closed", outer: 0o777, dir: 0o777, file: 0o600, may: "reach"},
	} {
		t.Run(c.name, c.ask)
	}
}

// make makes the file, its content and its names.
func (c askedByKey) make(r *keyedRig) objects.Ino {
	r.t.Helper()
	create := func(dir objects.Ino, name string, mode metadata.Mode, uid uint32) objects.Ino {
		a, err := r.store.Create(r.ctx(), dir, name, metadata.Node{Mode: mode, UID: uid, GID: uid})
		if err != nil {
			r.t.Fatal(err)
		}
		return a.Ino
	}
	outer := create(r.root("sim0"), "outer", metadata.TypeDir|c.outer, alice)
	dir := create(outer, "dir", metadata.TypeDir|c.dir, cmp.Or(c.dirOf, alice))
	ino := create(dir, "f", metadata.TypeRegular|c.file, alice)
	f := r.open(ino)
	r.write(f, 0, kit.Bytes(1, 0, 100))
	r.close(f)
	for i := range c.links {
		if _, err := r.store.Link(r.ctx(), ino, dir, fmt.Sprint("other ", i)); err != nil {
			r.t.Fatal(err)
		}
	}
	return ino
}

// ask requests all operations, as Bob and as root, with the key set anew each time.
func (c askedByKey) ask(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	ino := c.make(r)
	named := func(ask func() error) error {
		if err := r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte("k"), 0); err != nil {
			t.Fatal(err)
		}
		return ask()
	}
	who := objects.Caller{UID: bob, GID: bob, Groups: []uint32{}}
	for what, ask := range byKey(r, who, "k", ino) {
		err := named(ask)
		if may := slices.Contains(strings.Fields(c.may), what); may != (err == nil) || err != nil && !errors.Is(err, objects.ErrForbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, ask := range byKey(r, me(), "k", ino) {
		if err := named(ask); err != nil {
			t.Errorf("%s, by root: %v", what, err)
		}
	}
}
