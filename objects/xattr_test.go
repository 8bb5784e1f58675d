package objects_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Descriptions of the bytes are returned only as long as they fit the size.
func TestTensorAttributesFollowTheSize(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "t")
	defer r.close(f)
	r.write(f, 0, kit.Bytes(1, 0, 4096))
	set := func(name, value string) error {
		return r.store.SetXattr(r.ctx(), f.Ino(), "user.hmc."+name, []byte(value), 0)
	}
	get := func(name string) string {
		value, err := r.store.GetXattr(r.ctx(), f.Ino(), "user.hmc."+name)
		if err != nil && !errors.Is(err, metadata.ErrNoXattr) {
			t.Errorf("get %s: %v", name, err)
		}
		return string(value)
	}
	for _, s := range [][2]string{{"dtype", "float32"}, {"shape", "32,32"}, {"blobs", "4000,96"}} {
		if err := set(s[0], s[1]); err != nil {
			t.Fatalf("set %s to %s: %v", s[0], s[1], err)
		}
	}
	if err := set("dtype", "float64"); !errors.Is(err, objects.ErrInvalid) || get("dtype") != "float32" {
		t.Errorf("a dtype that does not fit: %v, now %s", err, get("dtype"))
	}
	r.write(f, 4096, kit.Bytes(2, 0, 4096))
	if get("shape") != "" || get("blobs") != "" || get("dtype") != "float32" {
		t.Errorf("after growing: dtype %q, shape %q, blobs %q", get("dtype"), get("shape"), get("blobs"))
	}
	names, err := r.store.ListXattr(r.ctx(), f.Ino())
	if err != nil || slices.Contains(names, "user.hmc.shape") || !slices.Contains(names, "user.hmc.dtype") {
		t.Errorf("listed after growing: %v, %v", names, err)
	}
	if err := set("dtype", "float64"); err != nil {
		t.Errorf("a shape of another size hinders a new dtype: %v", err)
	}
	if err := set("shape", "32,32"); err != nil || get("shape") != "32,32" {
		t.Errorf("a shape that fits now: %v, %q", err, get("shape"))
	}
	zero := uint64(0)
	if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: &zero}); err != nil {
		t.Fatal(err)
	}
	if get("dtype") != "" || get("shape") != "" {
		t.Errorf("after cutting to nothing: dtype %q, shape %q", get("dtype"), get("shape"))
	}
}
