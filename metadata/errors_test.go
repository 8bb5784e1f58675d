package metadata_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// scriptOp is one operation of the script.
type scriptOp struct {
	name string
	run  func(e *errorsEnv) error
}

// errorsEnv has what the operations of the script work on.
type errorsEnv struct {
	t *testing.T
	s *metadata.Store
	// sure is a store on the same KV without failures; it looks up paths.
	sure      *metadata.Store
	dev, dev1 metadata.Ino
}

// newErrorsEnv opens a store with two devices whose KV fails as specified by c.
func newErrorsEnv(t *testing.T, base metadata.KV, c *faulty.Counter) *errorsEnv {
	t.Helper()
	e := &errorsEnv{t: t}
	for kv, s := range map[metadata.KV]**metadata.Store{
		faulty.Wrap(base, c.Inject): &e.s, base: &e.sure,
	} {
		var err error
		if *s, err = metadata.Open(t.Context(), kv, metadata.Options{}); err != nil {
			t.Fatal(err)
		}
		metadata.CollideNames(*s, weakHash)
		metadata.SetPurgeBatch(*s, 16)
	}
	for i, ino := range []*metadata.Ino{&e.dev, &e.dev1} {
		in, err := e.s.EnsureDevice(t.Context(), metadata.DeviceName(fmt.Sprintf("sim%d", i)), 0o755, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		*ino = in.Ino
	}
	return e
}

func (e *errorsEnv) ino(path string) metadata.Ino {
	e.t.Helper()
	at := metadata.RootIno
	for name := range strings.SplitSeq(path, "/") {
		in, err := e.sure.Lookup(e.t.Context(), at, name)
		if err != nil {
			e.t.Fatalf("%s: %v", path, err)
		}
		at = in.Ino
	}
	return at
}

func (e *errorsEnv) create(dir, name string, node metadata.Node) error {
	_, err := e.s.Create(e.t.Context(), e.ino(dir), name, node)
	return err
}

func (e *errorsEnv) rename(from, name, to, newName string, flags metadata.RenameFlags) error {
	_, err := e.s.Rename(e.t.Context(), metadata.Rename{
		From: e.ino(from), Name: name, To: e.ino(to), NewName: newName, Flags: flags,
	})
	return err
}

func bigMappings(n int) []metadata.Mapping {
	maps := make([]metadata.Mapping, n)
	for i := range maps {
		maps[i] = metadata.Mapping{FileOff: uint64(i) * 10, Len: 10, Device: "sim0", Epoch: 3}
	}
	return maps
}

// dirNode is a plain directory.
func dirNode() metadata.Node { return metadata.Node{Mode: metadata.TypeDir | 0o755} }

// errorsScript contains every operation that writes. All names have one of a few hashes, so
// that chains of colliding entries are created and broken as well.
func errorsScript() []scriptOp {
	return slices.Concat(buildScript(), changeScript(), publishScript())
}

func buildScript() []scriptOp {
	regular := metadata.Node{Mode: metadata.TypeRegular | 0o644}
	return []scriptOp{
		{"mkdir a", func(e *errorsEnv) error { return e.create("sim0", "a", dirNode()) }},
		{"mkdir a/b", func(e *errorsEnv) error { return e.create("sim0/a", "b", dirNode()) }},
		{"create f", func(e *errorsEnv) error { return e.create("sim0/a", "f", regular) }},
		{"create g", func(e *errorsEnv) error { return e.create("sim0/a", "g", regular) }},
		{"create h", func(e *errorsEnv) error { return e.create("sim0/a", "h", regular) }},
		{"symlink", func(e *errorsEnv) error {
			return e.create("sim0/a", "s", metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: "f"})
		}},
		{"link f", func(e *errorsEnv) error {
			_, err := e.s.Link(e.t.Context(), e.ino("sim0/a/f"), e.ino("sim0/a/b"), "f2")
			return err
		}},
		{"update", func(e *errorsEnv) error {
			_, err := e.s.Update(e.t.Context(), e.ino("sim0/a/f"), func(in *metadata.Inode) error {
				in.Size = 99
				return nil
			})
			return err
		}},
		{"save many mappings", func(e *errorsEnv) error {
			_, err := e.s.SaveContent(e.t.Context(), e.ino("sim0/a/g"), nil, bigMappings(40))
			return err
		}},
		{"save few mappings", func(e *errorsEnv) error {
			_, err := e.s.SaveContent(e.t.Context(), e.ino("sim0/a/f"), nil, bigMappings(3))
			return err
		}},
		{"setxattr", func(e *errorsEnv) error {
			return e.s.SetXattr(e.t.Context(), e.ino("sim0/a/f"), "user.x", []byte("1"), 0)
		}},
		{"bind key", func(e *errorsEnv) error { return e.s.BindKey(e.t.Context(), e.ino("sim0/a/f"), "k") }},
		{"bind another key", func(e *errorsEnv) error { return e.s.BindKey(e.t.Context(), e.ino("sim0/a/f"), "k2") }},
	}
}

func changeScript() []scriptOp {
	return []scriptOp{
		{"rename file", func(e *errorsEnv) error { return e.rename("sim0/a", "f", "sim0/a/b", "moved", 0) }},
		{"rename back", func(e *errorsEnv) error { return e.rename("sim0/a/b", "moved", "sim0/a", "f", 0) }},
		{"rename link", func(e *errorsEnv) error { return e.rename("sim0/a/b", "f2", "sim0/a", "f3", 0) }},
		{"exchange", func(e *errorsEnv) error { return e.rename("sim0/a", "f", "sim0/a", "b", metadata.Exchange) }},
		{"exchange back", func(e *errorsEnv) error { return e.rename("sim0/a", "f", "sim0/a", "b", metadata.Exchange) }},
		{"rename over", func(e *errorsEnv) error { return e.rename("sim0/a", "h", "sim0/a", "g", 0) }},
		{"move to sim1", func(e *errorsEnv) error {
			_, err := e.s.MoveDevice(e.t.Context(), metadata.Rename{
				From: e.ino("sim0/a"), Name: "g", To: e.dev1, NewName: "there",
			}, "sim1", 4, bigMappings(2))
			return err
		}},
		{"epoch", func(e *errorsEnv) error { return e.s.SetDeviceEpoch(e.t.Context(), "sim1", 4) }},
		{"another device", func(e *errorsEnv) error {
			_, err := e.s.EnsureDevice(e.t.Context(), "sim2", 0o700, 1, 1)
			return err
		}},
		{"removexattr", func(e *errorsEnv) error {
			return e.s.RemoveXattr(e.t.Context(), e.ino("sim0/a/f"), "user.x")
		}},
		{"unlink primary", func(e *errorsEnv) error {
			_, err := e.s.Unlink(e.t.Context(), e.ino("sim0/a"), "f")
			return err
		}},
		{"unlink last", func(e *errorsEnv) error {
			_, err := e.s.Unlink(e.t.Context(), e.ino("sim0/a"), "f3")
			return err
		}},
		{"rmdir", func(e *errorsEnv) error {
			_, err := e.s.Rmdir(e.t.Context(), e.ino("sim0/a"), "b")
			return err
		}},
	}
}

// dump returns the content of a KV, except the counter of inode numbers, which may advance.
func dump(t *testing.T, kv metadata.KV) string {
	t.Helper()
	var b strings.Builder
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		return tx.Scan(nil, nil, func(key, value []byte) (bool, error) {
			if key[0] != 'A' {
				fmt.Fprintf(&b, "%x=%x\n", key, value)
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestErrors makes each operation of a script fail at its first use of the KV, then at its
// second, and so on until it succeeds: a failed operation has changed nothing, a successful
// one is complete.
func TestErrors(t *testing.T) {
	base := memkv.New()
	var c faulty.Counter
	e := newErrorsEnv(t, base, &c)
	for _, op := range errorsScript() {
		before := dump(t, base)
		for i := 0; ; i++ {
			c.Arm(i)
			err := op.run(e)
			hit := c.Disarm()
			if errors.Is(err, faulty.ErrInjected) {
				if after := dump(t, base); after != before {
					t.Fatalf("%s failed at operation %d, and changed something", op.name, i)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s with operation %d failing: %v", op.name, i, err)
			}
			if dump(t, base) == before {
				t.Fatalf("%s with operation %d failing: said to be done, but is not", op.name, i)
			}
			checkClean(t, e.s)
			if hit {
				t.Logf("%s is done although operation %d failed", op.name, i)
			}
			break
		}
	}
}
