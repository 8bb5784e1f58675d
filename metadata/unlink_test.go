package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// pickyKV accepts a number of writes in a transaction, and never the removal of one key. It counts the commits.
type pickyKV struct {
	metadata.KV
	most, commits int
	keeps         string
}

var errPicky = errors.New("this key stays")

func (k *pickyKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	err := k.KV.Update(ctx, func(t metadata.KVTxn) error { return fn(&pickyTxn{KVTxn: t, kv: k}) })
	if err == nil {
		k.commits++
	}
	return err
}

type pickyTxn struct {
	metadata.KVTxn
	kv     *pickyKV
	writes int
}

func (t *pickyTxn) Delete(key []byte) error {
	if t.writes++; t.writes > t.kv.most {
		return metadata.ErrTooLarge
	}
	if string(key) == t.kv.keeps {
		return errPicky
	}
	return t.KVTxn.Delete(key)
}

// removals opens a store with a number of keyed files, and returns them with names in between that can't be
// removed; each has a receipt.
func (f *fixture) removals(count int) (names []metadata.Removal, want []error) {
	f.t.Helper()
	f.put(f.sim0, f.newFiles(count, func(i int, n *metadata.NewFile) {
		n.Key = fmt.Sprint("key;", i)
		n.Fleeting = i%2 == 0
		n.Xattrs = map[string][]byte{"user.a": []byte(n.Key)}
		n.Expires = metadata.Timespec{Sec: int64(i)}
	})...)
	f.mkdir(f.sim0, "directory")
	for i := range count {
		names, want = append(names, metadata.Removal{Name: fmt.Sprintf("n%05d", i)}), append(want, nil)
		switch i % 5 {
		case 1:
			names, want = append(names, metadata.Removal{Name: "missing"}), append(want, metadata.ErrNotExist)
		case 2:
			names, want = append(names, metadata.Removal{Name: "directory"}), append(want, metadata.ErrIsDir)
		case 3:
			names, want = append(names, metadata.Removal{Name: names[0].Name}), append(want, metadata.ErrNotExist)
		case 4:
			names, want = append(names, metadata.Removal{Name: "a/b"}), append(want, metadata.ErrInvalidName)
		}
	}
	for i := range names {
		names[i].Receipts = []string{fmt.Sprintf("%05d", i)}
	}
	return names, want
}

// checkRemovals checks the outcomes, and what the store has left.
func (f *fixture) checkRemovals(names []metadata.Removal, want []error) {
	f.t.Helper()
	ctx := f.t.Context()
	var noted []string
	for i := range names {
		r := &names[i]
		if !errors.Is(r.Err, want[i]) {
			f.t.Errorf("name %d, %q: %v, want %v", i, r.Name, r.Err, want[i])
		}
		if r.Err != nil {
			continue
		}
		noted = append(noted, r.Receipts...)
		if in := &r.Inode; in.Nlink != 0 || in.Name != r.Name || in.Key == "" || in.Parent != f.sim0 {
			f.t.Errorf("%q was removed as %+v", r.Name, in)
		}
		_, err := f.Lookup(ctx, f.sim0, r.Name)
		fails(f.t, "look up "+r.Name, err, metadata.ErrNotExist)
		_, err = f.KeyIno(ctx, r.Inode.Key)
		fails(f.t, "key "+r.Inode.Key, err, metadata.ErrNotExist)
		_, err = f.Get(ctx, r.Inode.Ino)
		fails(f.t, "inode of "+r.Name, err, metadata.ErrNotExist)
	}
	all, err := metadata.ReceiptsOf(f.Store).List(ctx)
	if err != nil || fmt.Sprint(all) != fmt.Sprint(noted) {
		f.t.Errorf("%d receipts are noted (%v), want %d", len(all), err, len(noted))
	}
}

// TestUnlinkAll removes many names: in one transaction, in several if they are too many for one, and each on its own
// account if one can't be removed.
func TestUnlinkAll(t *testing.T) {
	const count = 100
	for name, tc := range map[string]struct {
		most, least, commits int // writes of a transaction, and bounds of the number of transactions
		stays                int // the file that can't be removed; -1 for none
	}{
		"at once":             {1 << 13, 1, 1, -1},
		"in several":          {count, 2, 16, -1},
		"one that can not be": {1 << 13, 2, 20, 42},
		"nor the last":        {1 << 13, 2, 20, count - 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			kv := &pickyKV{KV: f.kv, most: 1 << 13}
			var err error
			f.Store, err = metadata.Open(t.Context(), kv, metadata.Options{Now: f.clock.now})
			f.ok(err)
			names, want := f.removals(count)
			left := metadata.Usage{}
			if tc.stays >= 0 {
				key := fmt.Sprint("key;", tc.stays)
				kv.keeps, left = "k"+key, metadata.Usage{Names: 1, XattrBytes: uint64(len("user.a") + len(key))}
				at := slices.IndexFunc(names, func(r metadata.Removal) bool { return r.Name == fmt.Sprintf("n%05d", tc.stays) })
				want[at] = errPicky
			}
			kv.most, kv.commits = tc.most, 0
			f.UnlinkAll(t.Context(), f.sim0, names, false)
			if kv.commits < tc.least || kv.commits > tc.commits {
				t.Errorf("%d transactions, want %d to %d", kv.commits, tc.least, tc.commits)
			}
			f.checkRemovals(names, want)
			if in, err := f.Get(t.Context(), f.sim0); err != nil || in.Size != 1+left.Names {
				t.Errorf("%d names are left, %v", in.Size, err)
			}
			if used := f.Usage(benchFile().UID); used != left {
				t.Errorf("they use %+v, want %+v", used, left)
			}
		})
	}
}

// TestUnlinkAllFaults fails each operation of the KV once: all names are removed nevertheless.
func TestUnlinkAllFaults(t *testing.T) {
	for n := 0; ; n++ {
		f := newFixture(t)
		var fault faulty.Counter
		var err error
		f.Store, err = metadata.Open(t.Context(), faulty.Wrap(f.kv, fault.Inject), metadata.Options{})
		f.ok(err)
		names, want := f.removals(3)
		fault.Arm(n)
		f.UnlinkAll(t.Context(), f.sim0, names, true)
		hit := fault.Disarm()
		for i := range names {
			if errors.Is(names[i].Err, faulty.ErrInjected) { // a read that failed is the outcome of its name alone
				want[i] = faulty.ErrInjected
			}
		}
		f.checkRemovals(names, want)
		checkStore(t, f.Store)
		if !hit {
			break
		}
	}
}

// TestUnlinkAllNowhere removes names from a directory that does not exist.
func TestUnlinkAllNowhere(t *testing.T) {
	s, err := metadata.Open(t.Context(), memkv.New(), metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := []metadata.Removal{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	s.UnlinkAll(t.Context(), 4711, names, false)
	for i := range names {
		fails(t, "unlink", names[i].Err, metadata.ErrNotExist)
	}
	s.UnlinkAll(t.Context(), 4711, nil, false)
}
