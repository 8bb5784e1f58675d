package objects_test

import (
	"math/rand/v2"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Pages written in any order into reserved memory are one extent when all of them are
// written.
func TestPagesOfOneReservationJoin(t *testing.T) {
	kit.Check(t)
	const page, pages = 4096, 200
	r := newRig(t, small(false))
	f := r.create("sim0", "a")
	if err := f.Allocate(r.ctx(), objects.AllocateExtend, 0, pages*page); err != nil {
		t.Fatal(err)
	}
	for n, at := range rand.Perm(pages) {
		off := int64(at) * page
		if _, err := f.WriteAt(r.ctx(), kit.Bytes(1, off, page), objects.Write{Off: uint64(off)}); err != nil {
			t.Fatal(err)
		}
		if n == pages/2 {
			if err := f.Sync(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := kit.FirstDiff(r.read(f, 0, pages*page), kit.Bytes(1, 0, pages*page)); d >= 0 {
		t.Errorf("byte %d differs", d)
	}
	r.close(f)
	maps, err := r.meta.Mappings(r.ctx(), f.Ino())
	if err != nil || len(maps) != 1 || maps[0].Len != pages*page || maps[0].Written != pages*page {
		t.Errorf("records %+v, %v", maps, err)
	}
	f = r.open(f.Ino())
	if d := kit.FirstDiff(r.read(f, 0, pages*page), kit.Bytes(1, 0, pages*page)); d >= 0 {
		t.Errorf("byte %d differs after it was loaded", d)
	}
	r.close(f)
	if err := r.store.Unlink(r.ctx(), r.root("sim0"), "a"); err != nil {
		t.Fatal(err)
	}
	if used := r.used("sim0"); used != 0 {
		t.Errorf("%v in use after rm", used)
	}
}
