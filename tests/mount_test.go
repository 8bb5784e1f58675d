package tests

import (
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestMountKeepsBytesAcrossRemountAndDeath(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	want := kit.Bytes(1, 0, 3<<20)
	if err := os.WriteFile(m.Path("host", "a"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got, err := os.ReadFile(m.Path("host", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if i := kit.FirstDiff(got, want); i >= 0 {
			t.Fatalf("differs at %d of %d", i, len(got))
		}
	}
	check()
	m.Remount()
	check()
	m.Kill()
	m.Start()
	check()
}
