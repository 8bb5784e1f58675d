package objects_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// commitsKV counts the transactions that change something, or may.
type commitsKV struct {
	metadata.KV
	commits atomic.Int64
}

func (k *commitsKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	k.commits.Add(1)
	return k.KV.Update(ctx, fn)
}

// TestDropMany removes the keys of two users on two devices in one call, by each way: few transactions remove those of
// the caller, with their blobs and attributes, and the others stay.
func TestDropMany(t *testing.T) {
	kit.Check(t)
	const count = 300 // more than one transaction removes
	kv := &commitsKV{KV: memkv.New()}
	r := &rig{t: t, devs: []devices.Device{sim.New(0, small(false)), sim.New(1, small(true))}, kv: kv}
	r.start()
	t.Cleanup(r.stop)
	for _, device := range []string{"sim0", "sim1"} {
		_, err := r.store.SetAttr(r.ctx(), r.root(device), objects.Change{Mode: new(metadata.Mode(0o1777))})
		noError(t, err)
	}
	mine := objects.Caller{UID: 4711, GID: 4711, Groups: []uint32{}}
	a, b, theirs := r.userAs(mine, 0, 1, count*4), r.userAs(mine, 1, 2, count*4), r.user(0, 3, 100)
	for name, drop := range map[string]func(context.Context, []string) []error{"Drop": a.Drop, "DropLocal": a.DropLocal} {
		keys := r.bindMany(a, "a", count)
		theirKeys := r.bindMany(theirs, "theirs", 3)
		other := r.bindMany(b, "b", 2)
		call := slices.Concat(theirKeys[:1], keys[:2], keys, []string{"none"}, theirKeys[1:2], other, theirKeys[2:], keys[:2])
		open := r.open(r.keyIno(keys[0]))
		events, before := r.store.Listen(), kv.commits.Load()
		errs := drop(r.ctx(), call)
		if n := kv.commits.Load() - before; n > 8 {
			t.Errorf("%s: %d transactions", name, n)
		}
		gone := r.dropped(name, call, errs)
		if a.Blobs() != 1 || theirs.Blobs() != 3 { // the one that is open
			t.Errorf("%s: %d and %d blobs are left, want 1 and 3", name, a.Blobs(), theirs.Blobs())
		}
		if v, err := r.store.GetXattr(r.ctx(), open.Ino(), "user.mine"); err != nil || string(v) != "kept" {
			t.Errorf("%s: attribute of the open object: %q, %v", name, v, err)
		}
		r.close(open)
		if a.Blobs() != 0 {
			t.Errorf("%s: %d blobs are left", name, a.Blobs())
		}
		for _, want := range gone {
			r.hears(events, objects.EventRemoved, want)
		}
		events.Close()
		noError(t, errors.Join(theirs.Drop(r.ctx(), slices.Concat(theirKeys, other))...))
	}
}

// dropped checks the outcome of a call for each of its keys, and returns those that it has removed.
func (r *rig) dropped(name string, call []string, errs []error) (gone []string) {
	r.t.Helper()
	for i, err := range errs {
		key := call[i]
		stays := strings.HasPrefix(key, "theirs") || name == "DropLocal" && strings.HasPrefix(key, "b")
		want := error(nil)
		if stays && name == "Drop" {
			want = objects.ErrForbidden
		}
		wantErr(r.t, name+" of "+key, err, want)
		if stays {
			r.keyIno(key)
			continue
		}
		r.wantGone(key)
		if key != "none" && !slices.Contains(gone, key) {
			gone = append(gone, key)
		}
	}
	return gone
}

// bindMany sets keys, of which the first has an attribute.
func (r *rig) bindMany(u *user, prefix string, count int) []string {
	r.t.Helper()
	keys := manyKeys(prefix, count)
	set := make([]objects.Keyed, count)
	for i, key := range keys {
		set[i] = u.keyed(key, uint64(i*4), 4)
	}
	noError(r.t, errors.Join(u.Bind(r.ctx(), set)...))
	noError(r.t, r.store.SetXattr(r.ctx(), r.keyIno(keys[0]), "user.mine", []byte("kept"), 0))
	return keys
}

// hears fails unless the next event of a kind is that of a key.
func (r *rig) hears(e *objects.Events, kind objects.EventKind, key string) {
	r.t.Helper()
	for {
		ev, err := e.Next(r.ctx())
		if err != nil {
			r.t.Fatal(err)
		}
		if ev.Kind != kind {
			continue
		}
		if ev.Key != key || ev.Size != 4 {
			r.t.Fatalf("heard %+v, want %s of %q", ev, kind, key)
		}
		return
	}
}
