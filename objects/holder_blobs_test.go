package objects_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestBlobsAreCounted: the blobs that a holder has set and published count until they
// are removed, received or replaced, and requests beyond the limit are refused.
func TestBlobsAreCounted(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	a, b := r.user(0, 1, 1<<16), r.user(0, 2, 1<<16)
	want := func(what string, n int64) {
		t.Helper()
		if got := a.Blobs(); got != n {
			t.Errorf("%s: %d blobs, want %d", what, got, n)
		}
	}
	for range 3 {
		a.mustBind(a.keyed("set", 0, 5, 100, 5))
		want("set", 2)
		if err := a.bind(a.keyed("set", 0, 5, 100, 5)); err != nil {
			t.Fatal(err)
		}
		want("set again", 2)
		if err := a.bind(a.keyed("set", 7, 5)); !errors.Is(err, objects.ErrInconsistent) {
			t.Fatal(err)
		}
		a.mustPublish(a.keyed("offered", 0, 5))
		want("published", 3)
		if err := b.Receive(r.ctx(), b.keyed("offered", 0, 5)); err != nil {
			t.Fatal(err)
		}
		want("received", 2)
		if err := a.Drop(r.ctx(), []string{"set"})[0]; err != nil {
			t.Fatal(err)
		}
		want("removed", 0)
	}
	many := make([]objects.Blob, objects.MaxBlobs+1)
	for i := range many {
		many[i] = a.keyed("k", 0, 1).Blobs[0]
	}
	if err := a.bind(objects.Keyed{Key: "many", Blobs: many}); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("more blobs than there may be: %v", err)
	}
	want("refused", 0)
	for _, l := range r.store.Limits() {
		if got := l.Refused; (l.Name == "session-blobs") != (got == 1) {
			t.Errorf("%s: %d refusals are counted", l.Name, got)
		}
	}
}
