package metadata_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

// TestParts follows the keys of parts through everything that can happen to their file.
func TestParts(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	file := f.touch(f.sim0, "m")
	bind := func(part, key string) error { return f.BindPart(ctx, file, part, key) }
	f.ok(bind("a", "ka"))
	f.ok(bind("a", "ka")) // again
	f.ok(bind("b", "kb"))
	fails(t, "a key of another part", bind("b", "ka"), metadata.ErrExist)
	fails(t, "an invalid key", bind("b", "x/y"), metadata.ErrInvalidKey)
	fails(t, "no part", bind("", "k"), metadata.ErrInvalid)
	fails(t, "a long part", bind(strings.Repeat("p", metadata.MaxPart+1), "k"), metadata.ErrInvalid)
	fails(t, "a part of a directory", f.BindPart(ctx, f.sim0, "a", "k"), metadata.ErrInvalid)
	fails(t, "the key of a part for a file", f.BindKey(ctx, file, "ka"), metadata.ErrExist)
	if e, err := f.Key(ctx, "ka"); err != nil || e != (metadata.KeyEntry{"ka", file, "a"}) {
		t.Errorf("key: %+v, %v", e, err)
	}
	f.ok(bind("a", "new"))
	_, err := f.Key(ctx, "ka")
	fails(t, "the old key", err, metadata.ErrNotExist)
	f.ok(bind("b", ""))
	if got, listed := f.PartKeys(ctx, file); listed != nil || !slices.Equal(got, []metadata.PartKey{{"a", "new"}}) {
		t.Errorf("parts: %v, %v", got, listed)
	}
	checkStore(t, f.Store)

	// Another file takes the key, which leaves the file as it is otherwise.
	ino, err := f.NewInos(ctx, 1)
	f.ok(err)
	put, err := f.Put(ctx, f.sim0, []metadata.NewFile{{Ino: ino[0], Name: "p", Key: "new", Replace: true, Node: benchFile()}})
	f.ok(errors.Join(err, put[0].Err))
	if put[0].Unkeyed != 0 {
		t.Errorf("inode %d lost its key", put[0].Unkeyed)
	}
	if in, gone := f.Get(ctx, file); gone != nil || in.Parts != 0 {
		t.Errorf("inode after its part lost its key: %+v, %v", in, gone)
	}
	checkStore(t, f.Store)

	// Publishing takes the keys, and so does the removal.
	f.ok(bind("a", "ka"))
	_, err = f.Publish(ctx, f.sim0, "m", "pub")
	f.ok(err)
	fails(t, "a key in publish/", bind("a", "ka"), metadata.ErrPermission)
	_, err = f.Key(ctx, "ka")
	fails(t, "key of a publication", err, metadata.ErrNotExist)
	file = f.touch(f.sim0, "m")
	f.ok(bind("a", "ka"))
	_, err = f.Unlink(ctx, f.sim0, "m")
	f.ok(err)
	_, err = f.Key(ctx, "ka")
	fails(t, "key of a removed file", err, metadata.ErrNotExist)
	checkStore(t, f.Store)
}

// TestPartsAreLimited fills a file with keys, and removes them all with it.
func TestPartsAreLimited(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	file := f.fileOf(7, "m")
	long := strings.Repeat("p", metadata.MaxPart-5)
	for i := range metadata.MaxParts {
		f.ok(f.BindPart(ctx, file, fmt.Sprintf("%s%05d", long, i), fmt.Sprintf("%0*d", metadata.MaxKey, i)))
	}
	fails(t, "one part more", f.BindPart(ctx, file, "x", "x"), metadata.ErrTooManyLinks)
	f.ok(f.BindPart(ctx, file, long+"00000", "instead"))
	if got := f.Usage(7).Names; got != metadata.MaxParts+1 {
		t.Errorf("the owner has %d names", got)
	}
	checkStore(t, f.Store)
	_, err := f.Unlink(ctx, f.sim0, "m")
	f.ok(err)
	if got := f.Usage(7); got != (metadata.Usage{}) {
		t.Errorf("the owner still uses %+v", got)
	}
	checkStore(t, f.Store)
}

// TestRepairParts damages the records of parts in each way, and repairs them.
func TestRepairParts(t *testing.T) {
	const key = "kk" // the record of key k
	type damage func(tx metadata.KVTxn, part, inode []byte) error
	for name, c := range map[string]struct {
		damage damage
		kinds  []metadata.ProblemKind // nil for any
		kept   bool
	}{
		"no key": {func(tx metadata.KVTxn, _, _ []byte) error { return tx.Delete([]byte(key)) }, []metadata.ProblemKind{metadata.DanglingPart}, true},
		"no part": {
			func(tx metadata.KVTxn, part, _ []byte) error { return tx.Delete(part) },
			[]metadata.ProblemKind{metadata.DanglingKey, metadata.WrongCount},
			false,
		},
		"no inode": {func(tx metadata.KVTxn, _, inode []byte) error { return tx.Delete(inode) }, nil, false},
		"a wrong count": {func(tx metadata.KVTxn, _, inode []byte) error {
			value, err := tx.Get(inode)
			value = slices.Clone(value)
			value[len(value)-1] = 9 // the last field
			return errors.Join(err, tx.Set(inode, value))
		}, []metadata.ProblemKind{metadata.WrongCount}, true},
		"another owner": {
			func(tx metadata.KVTxn, _, _ []byte) error { return tx.Set([]byte(key), []byte{1, 1}) },
			[]metadata.ProblemKind{metadata.DanglingKey, metadata.DanglingPart},
			true,
		},
		"corrupt part": {func(tx metadata.KVTxn, part, _ []byte) error { return tx.Set(part, []byte{1, 9}) }, nil, false},
		"corrupt key":  {func(tx metadata.KVTxn, _, _ []byte) error { return tx.Set([]byte(key), []byte{2, 1}) }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			ctx := t.Context()
			file := f.touch(f.sim0, "m")
			f.ok(f.BindPart(ctx, file, "a", "k"))
			number := binary.BigEndian.AppendUint64(nil, uint64(file))
			record := append(append([]byte("t"), number...), 'a')
			f.ok(f.kv.Update(ctx, func(tx metadata.KVTxn) error { return c.damage(tx, record, append([]byte("i"), number...)) }))
			kinds := f.repairAll()
			if len(kinds) == 0 || c.kinds != nil && !slices.Equal(kinds, c.kinds) {
				t.Errorf("problems: %v, want %v", kinds, c.kinds)
			}
			if e, err := f.Key(ctx, "k"); c.kept != (err == nil && e.Part == "a") {
				t.Errorf("key after the repair: %+v, %v", e, err)
			}
		})
	}
}

// repairAll repairs until nothing is wrong, and returns the kinds of the first problems.
func (f *fixture) repairAll() (kinds []metadata.ProblemKind) {
	f.t.Helper()
	for round := range 6 {
		var found []metadata.Problem
		f.ok(f.Check(f.t.Context(), func(p metadata.Problem) { found = append(found, p) }))
		if len(found) == 0 {
			return kinds
		}
		for _, p := range found {
			if round == 0 {
				kinds = append(kinds, p.Kind)
			}
			if err := f.Repair(f.t.Context(), p); err != nil && !errors.Is(err, metadata.ErrChanged) {
				f.t.Fatal(err)
			}
		}
	}
	f.t.Fatal("problems remain")
	return nil
}
