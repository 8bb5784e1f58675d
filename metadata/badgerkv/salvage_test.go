package badgerkv_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestSalvageBetweenBadRecords damages the values of three records of one log: all others
// must be restored, including those between the bad ones.
func TestSalvageBetweenBadRecords(t *testing.T) {
	const keys = 300
	dir, killed := t.TempDir(), filepath.Join(t.TempDir(), "killed")
	kv := open(t, dir)
	for i := range keys {
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Set(fmt.Appendf(nil, "key%06d", i), []byte("a value"))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	copyState(t, dir, killed)
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	log := first(t, killed, "*.mem")
	f := readSparse(t, log)
	for _, i := range []int{30, 31, 270} {
		key := fmt.Appendf(nil, "key%06d", i)
		f.data[bytes.Index(f.data, key)+len(key)+8+3] ^= 1 // after the version
	}
	f.write(t, log)
	got, err := badgerkv.Salvage(t.Context(), badgerkv.Options{Dir: killed}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Records != keys-3 || len(got.Gone) == 0 {
		t.Errorf("%d records of %d are back; gone are %q", got.Records, keys, got.Gone)
	}
	var want strings.Builder
	for _, line := range got.Damage {
		want.WriteString("damaged: " + line + "\n")
	}
	for _, line := range got.Gone {
		want.WriteString("gone: " + line + "\n")
	}
	report, err := os.ReadFile(filepath.Join(got.Aside, badgerkv.RepairReport))
	if err != nil || string(report) != want.String() {
		t.Errorf("the report is %q, %v, want %q", report, err, want.String())
	}
}

// TestNoRepairReport has a repair that can't write its report: it must change nothing.
func TestNoRepairReport(t *testing.T) {
	store := filepath.Join(t.TempDir(), "state")
	oneKey(t, badgerkv.Options{Dir: store})
	err := os.Remove(filepath.Join(store, "MANIFEST"))
	if err == nil {
		err = os.Mkdir(filepath.Join(store, badgerkv.RepairReport), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := badgerkv.Salvage(t.Context(), badgerkv.Options{Dir: store}, nil, nil); err == nil {
		t.Errorf("Salvage = %+v", got)
	}
	if got := names(t, store); !slices.Equal(got, []string{"state"}) {
		t.Errorf("there are %q", got)
	}
}
