package daemon

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestReach names a file by path and by number: a user who may not search its directories
// reaches no more than the kernel would permit.
func TestReach(t *testing.T) {
	kit.Check(t)
	d := unmounted(t, "host,size=16MiB", "sim:0,size=16MiB")
	const alice, bob, team = 1000, 1001, 2000
	at, err := d.store.Lookup(t.Context(), metadata.RootIno, "sim0")
	if err != nil {
		t.Fatal(err)
	}
	create := func(parent metadata.Ino, name string, mode metadata.Mode) metadata.Ino {
		t.Helper()
		a, cerr := d.store.Create(t.Context(), parent, name, metadata.Node{Mode: mode, UID: alice, GID: team})
		if cerr != nil {
			t.Fatal(cerr)
		}
		return a.Ino
	}
	in := func(mode metadata.Mode) (path string, ino metadata.Ino) {
		name := string("0123456789"[mode>>6&7]) + string("0123456789"[mode>>3&7]) + string("0123456789"[mode&7])
		dir := create(at.Ino, name, unix.S_IFDIR|mode)
		dir = create(dir, "deep", unix.S_IFDIR|0o777)
		return "sim0/" + name + "/deep/f", create(dir, "f", unix.S_IFREG|0o666)
	}
	people := map[string]objects.Caller{
		"root":  {Groups: []uint32{}},
		"owner": {UID: alice, GID: alice, Groups: []uint32{}},
		"group": {UID: bob, GID: bob, Groups: []uint32{team}},
		"other": {UID: bob, GID: bob, Groups: []uint32{}},
	}
	for mode, may := range map[metadata.Mode][]string{
		0o700: {"root", "owner"},
		0o066: {"root"},
		0o766: {"root", "owner"},
		0o710: {"root", "owner", "group"},
		0o701: {"root", "owner", "other"}, // the class of the group decides
		0o011: {"root", "group", "other"},
		0o711: {"root", "owner", "group", "other"},
	} {
		path, ino := in(mode)
		for name, by := range people {
			want := false
			for _, m := range may {
				want = want || m == name
			}
			for what, f := range map[string]adminapi.File{
				"path": {Path: path}, "absolute path": {Path: d.opts.Places.MountPoint + "/" + path}, "number": {Ino: ino},
			} {
				got, ferr := d.File(t.Context(), by, f, nil)
				switch {
				case want && (ferr != nil || got != ino):
					t.Errorf("%s by %s in a directory of mode %o: inode %d, %v", what, name, mode, got, ferr)
				case !want && !errors.Is(ferr, objects.ErrForbidden):
					t.Errorf("%s by %s in a directory of mode %o: %v; want forbidden", what, name, mode, ferr)
				}
			}
			// Not even the existence of the file is revealed.
			_, ferr := d.File(t.Context(), by, adminapi.File{Path: path + "-not"}, nil)
			if errors.Is(ferr, objects.ErrForbidden) == want || errors.Is(ferr, metadata.ErrNotExist) != want {
				t.Errorf("what is not there by %s in a directory of mode %o: %v", name, mode, ferr)
			}
		}
	}
	if _, err = d.File(t.Context(), people["other"], adminapi.File{Ino: 1 << 40}, nil); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("a number of nothing: %v", err)
	}
}
