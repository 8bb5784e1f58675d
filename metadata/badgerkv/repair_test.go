package badgerkv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// names lists the files beside a store, including the store.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// mustHaveKey opens a store and fails the test unless it has the key of oneKey.
func mustHaveKey(t *testing.T, dir string) {
	t.Helper()
	kv := open(t, dir)
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		_, err := tx.Get([]byte("key"))
		return err
	})
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Error(err)
	}
}

// TestKilledRepair leaves a repair in every state that a kill can: the records are either
// the damaged or the repaired ones, and the next start and the next repair clean up.
func TestKilledRepair(t *testing.T) {
	for _, test := range []struct {
		name string
		// left turns a store, a damaged copy and one under construction into the state that
		// the kill leaves.
		left   func(store, damaged, half string) error
		mended bool
	}{
		{"while the store is built", func(store, damaged, half string) error {
			return errors.Join(os.Rename(half, store+".mending"), os.RemoveAll(store), os.Rename(damaged, store))
		}, false},
		{"when the store is whole", func(store, damaged, half string) error {
			return errors.Join(os.RemoveAll(half), os.Rename(store, store+".mended"), os.Rename(damaged, store))
		}, false},
		{"between the two names", func(store, damaged, half string) error {
			return errors.Join(os.RemoveAll(half), os.Rename(store, store+".mended"), os.Rename(damaged, store+".damaged-1"))
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := filepath.Join(t.TempDir(), "state")
			damaged, half := store+".a", store+".b"
			oneKey(t, badgerkv.Options{Dir: store})
			copyState(t, store, damaged)
			copyState(t, store, half)
			err := errors.Join(os.Remove(filepath.Join(damaged, "MANIFEST")), os.Remove(first(t, half, "*.sst")), test.left(store, damaged, half))
			if err != nil {
				t.Fatal(err)
			}
			if empty, err := badgerkv.IsEmpty(store); empty || err != nil {
				t.Fatalf("IsEmpty = %t, %v", empty, err)
			}
			if test.mended {
				mustHaveKey(t, store)
			} else {
				repairAgain(t, store)
			}
			if got := names(t, store); !slices.Equal(got, []string{"state", "state.damaged-1"}) {
				t.Errorf("after the repair there are %q", got)
			}
		})
	}
}

// repairAgain opens damaged records, which is refused, and repairs them.
func repairAgain(t *testing.T, store string) {
	t.Helper()
	if _, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: store}); !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("Open = %v, want ErrCorrupt", err)
	}
	if got := names(t, store); !slices.Equal(got, []string{"state"}) {
		t.Errorf("after a start there are %q", got)
	}
	got, err := badgerkv.Salvage(t.Context(), badgerkv.Options{Dir: store}, nil, nil)
	if err != nil || got == nil || got.Records != 1 {
		t.Fatalf("Salvage = %+v, %v", got, err)
	}
	mustHaveKey(t, store)
}

// TestFailedRepair makes the caller's part of a repair fail, twice.
func TestFailedRepair(t *testing.T) {
	store := filepath.Join(t.TempDir(), "state")
	oneKey(t, badgerkv.Options{Dir: store})
	if err := os.Remove(filepath.Join(store, "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("a failure")
	for range 2 {
		_, err := badgerkv.Salvage(t.Context(), badgerkv.Options{Dir: store}, nil, func(context.Context, metadata.KV) ([]string, error) { return nil, failure })
		if !errors.Is(err, failure) {
			t.Errorf("Salvage = %v", err)
		}
		if got := names(t, store); !slices.Equal(got, []string{"state"}) {
			t.Errorf("there are %q", got)
		}
	}
}

// TestRefusedByBadger lists two tables with the same keys below level 0: each of them is
// intact, but Badger refuses to open them.
func TestRefusedByBadger(t *testing.T) {
	store := filepath.Join(t.TempDir(), "state")
	oneKey(t, badgerkv.Options{Dir: store})
	oneKey(t, badgerkv.Options{Dir: store})
	tables, err := filepath.Glob(filepath.Join(store, "*.sst"))
	if err != nil || len(tables) < 2 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	var set pb.ManifestChangeSet
	for i := range tables {
		set.Changes = append(set.Changes, &pb.ManifestChange{Id: uint64(i + 1), Op: pb.ManifestChange_CREATE, Level: 5})
	}
	list, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("Bdgr\x00\x00\x00\x08")
	data = binary.BigEndian.AppendUint32(data, uint32(len(list)))
	data = binary.BigEndian.AppendUint32(data, crc32.Checksum(list, y.CastagnoliCrcTable))
	if err = os.WriteFile(filepath.Join(store, "MANIFEST"), append(data, list...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, refused := badgerkv.Open(t.Context(), badgerkv.Options{Dir: store})
	if !errors.Is(refused, metadata.ErrCorrupt) {
		t.Fatalf("Open = %v, want ErrCorrupt", refused)
	}
	got, err := badgerkv.Salvage(t.Context(), badgerkv.Options{Dir: store}, refused, nil)
	if err != nil || got == nil {
		t.Fatalf("Salvage = %v, %v", got, err)
	}
	if len(got.Damage) != 1 || len(got.Gone) != 0 || got.Records != 1 {
		t.Errorf("Salvage = %+v", got)
	}
	mustHaveKey(t, store)
}
