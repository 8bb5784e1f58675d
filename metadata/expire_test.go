package metadata_test

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

// TestExpire sets, changes and clears the expiry time of files.
func TestExpire(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	at := func(sec int64) metadata.Timespec { return metadata.Timespec{Sec: sec, Nsec: 7} }
	a, b, c := f.touch(f.sim0, "a"), f.touch(f.sim0, "b"), f.touch(f.sim1, "c")
	for ino, when := range map[metadata.Ino]int64{a: 30, b: -10, c: 20} {
		f.ok(f.Expire(ctx, ino, at(when)))
	}
	check := func(what string, now int64, limit int, next metadata.Timespec, want ...metadata.Ino) {
		t.Helper()
		over, then, err := f.Expired(ctx, at(now), limit)
		if err != nil || !slices.Equal(over, want) || then != next {
			t.Errorf("%s: %v are over, next %v, %v, want %v, %v", what, over, then, err, want, next)
		}
	}
	check("before all", -11, 0, at(-10))
	check("at the first", -10, 0, at(20), b)
	check("after all", 30, 0, metadata.Timespec{}, b, c, a)
	check("two of three", 30, 2, at(30), b, c)
	f.ok(f.Expire(ctx, b, at(40)))
	check("moved", 35, 0, at(40), c, a)
	f.ok(f.Expire(ctx, c, metadata.Timespec{}))
	check("never", 50, 0, metadata.Timespec{}, a, b)
	f.must(f.Unlink(ctx, f.sim0, "a"))
	check("removed", 50, 0, metadata.Timespec{}, b)
	if in := f.must(f.Get(ctx, b)); in.Expires != at(40) {
		t.Errorf("b says that it ends at %v", in.Expires)
	}
	fails(t, "a directory", f.Expire(ctx, f.sim0, at(1)), metadata.ErrInvalid)
	fails(t, "nothing", f.Expire(ctx, a, at(1)), metadata.ErrNotExist)
	fails(t, "no time", f.Expire(ctx, b, metadata.Timespec{Nsec: 1e9}), metadata.ErrInvalid)
}
