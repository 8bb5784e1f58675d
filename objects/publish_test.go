package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// publish publishes one key.
func (u *user) publish(k objects.Keyed) (*devices.Signal, error) {
	all, errs := u.Publish(u.rig.ctx(), []objects.Keyed{k})
	return all[0], errs[0]
}

func (u *user) mustPublish(k objects.Keyed) *devices.Signal {
	u.rig.t.Helper()
	p, err := u.publish(k)
	if err != nil {
		u.rig.t.Fatal(err)
	}
	return p
}

// ended waits for the end of a publication.
func (r *rig) ended(p *devices.Signal) error {
	r.t.Helper()
	select {
	case <-p.Done():
		return p.Err()
	case <-r.ctx().Done():
		r.t.Fatal("the publication does not end")
		return nil
	}
}

func (r *rig) pending(p *devices.Signal) {
	r.t.Helper()
	select {
	case <-p.Done():
		r.t.Fatalf("the publication has ended: %v", p.Err())
	default:
	}
}

// file makes a file with the content of a seed.
func (r *rig) file(device, name string, seed uint64, n int) objects.Ino {
	r.t.Helper()
	f := r.create(device, name)
	defer r.close(f)
	r.write(f, 0, kit.Bytes(seed, 0, n))
	return f.Ino()
}

// offer renames a file into publish/.
func (r *rig) offer(device, name, key string) error {
	return r.store.Rename(r.ctx(), metadata.Rename{From: r.root(device), Name: name, To: metadata.PublishIno, NewName: key})
}

// fetch renames a file out of publish/.
func (r *rig) fetch(key, device, name string) error {
	return r.store.Rename(r.ctx(), metadata.Rename{From: metadata.PublishIno, Name: key, To: r.root(device), NewName: name})
}

// mustOffer makes and publishes a file.
func (r *rig) mustOffer(device, key string, seed uint64, n int) objects.Ino {
	r.t.Helper()
	ino := r.file(device, "of "+key, seed, n)
	if err := r.offer(device, "of "+key, key); err != nil {
		r.t.Fatal(err)
	}
	return ino
}

// isPublished reports whether a name exists in publish/.
func (r *rig) isPublished(key string) bool {
	r.t.Helper()
	_, err := r.store.Lookup(r.ctx(), metadata.PublishIno, key)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		r.t.Fatal(err)
	}
	return err == nil
}

// deliver reads as package fs does: it reads the bytes, and then calls Deliver.
func deliver(ctx context.Context, f *objects.File, off uint64, n int) ([]byte, error) {
	p := make([]byte, n)
	n, err := f.ReadAt(ctx, p, off)
	if err == nil {
		err = f.Deliver(ctx, off, n)
	}
	if err != nil {
		return nil, err
	}
	return p[:n], nil
}

// heard reads n events and formats them.
func (r *rig) heard(e *objects.Events, n int) string {
	r.t.Helper()
	var all string
	for i := range n {
		ev, err := e.Next(r.ctx())
		if err != nil {
			r.t.Fatalf("event %d, behind %q: %v", i, all, err)
		}
		all += fmt.Sprintf("%s %s %s %d\n", ev.Kind, ev.Key, ev.Device, ev.Size)
	}
	return all
}

func TestPublishReceive(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(true))
	e := r.store.Listen()
	defer e.Close()
	for name, to := range map[string]int{"same device": 0, "other device": 1} {
		t.Run(name, func(t *testing.T) {
			a, b := r.user(0, 1, 3<<20), r.user(to, 2, 4<<20)
			p := a.mustPublish(a.keyed("k", 1<<20, 1<<20, 17, 100, 2<<20, 77777))
			r.pending(p)
			info, err := b.PublicationInfo(r.ctx(), "k")
			if err != nil || fmt.Sprint(info.Blobs) != "[1048576 100 77777]" || info.Attr.Device != "sim0" {
				t.Fatalf("%+v, %v", info, err)
			}
			if err := b.Receive(r.ctx(), b.keyed("k", 5, 1<<20, 2<<20, 100, 3<<20, 77777)); err != nil {
				t.Fatal(err)
			}
			if err := r.ended(p); err != nil || r.isPublished("k") {
				t.Fatalf("received: %v, there still: %v", err, r.isPublished("k"))
			}
			want := kit.Bytes(2, 0, 4<<20)
			from := kit.Bytes(1, 0, 3<<20)
			copy(want[5:], from[1<<20:][:1<<20])
			copy(want[2<<20:], from[17:][:100])
			copy(want[3<<20:], from[2<<20:][:77777])
			if at := kit.FirstDiff(b.bytes(), want); at >= 0 {
				t.Fatalf("other bytes from %d on", at)
			}
			if !bytes.Equal(a.bytes(), from) {
				t.Fatal("the publisher's bytes have changed")
			}
			if got, want := r.heard(e, 2), "published k sim0 1126453\nconsumed k sim0 1126453\n"; got != want {
				t.Fatalf("heard %s, want %s", got, want)
			}
			if err := b.Receive(r.ctx(), b.keyed("k", 0, 1)); !errors.Is(err, metadata.ErrNotExist) {
				t.Fatalf("received again: %v", err)
			}
		})
	}
}

// TestPublishRefused: a refused call to publish or receive changes nothing, and does
// not affect the other keys of the call.
func TestPublishRefused(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	a, b := r.user(0, 1, 1<<20), r.user(1, 2, 1<<20)
	stranger := r.store.NewHolder(objects.Caller{UID: 1234, GID: 1234, Groups: []uint32{}})
	defer func() { _ = stranger.Close(context.WithoutCancel(r.ctx())) }()
	whole := a.keyed("k", 0, 1000)
	p := a.mustPublish(whole)
	ino := r.file("sim0", "f", 3, 100)
	file, err := a.RegisterFile(r.ctx(), ino)
	if err != nil {
		t.Fatal(err)
	}
	set := []objects.Keyed{
		whole, a.keyed("k", 0, 999), a.keyed("a/b", 0, 1),
		{Key: "none"},
		b.keyed("theirs", 0, 1),
		{Key: "file", Blobs: []objects.Blob{{Region: file, Len: 100}}},
		a.keyed("fine", 5, 6),
	}
	all, errs := a.Publish(r.ctx(), set)
	for i, want := range []error{
		nil, objects.ErrInconsistent, metadata.ErrInvalidKey, objects.ErrInvalid, objects.ErrInvalid,
		objects.ErrUnsupported, nil,
	} {
		if !errors.Is(errs[i], want) || (all[i] == nil) != (want != nil) {
			t.Errorf("%q: %v, want %v", set[i].Key, errs[i], want)
		}
	}
	if all[0] != p {
		t.Error("publishing the same again is another publication")
	}
	if _, err := b.publish(b.keyed("k", 0, 1000)); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("publishing another's key: %v", err)
	}
	if _, errs := stranger.Publish(r.ctx(), []objects.Keyed{{Key: "s"}}); !errors.Is(errs[0], objects.ErrForbidden) {
		t.Errorf("a stranger publishes: %v", errs[0])
	}
	if _, err := stranger.PublicationInfo(r.ctx(), "k"); !errors.Is(err, objects.ErrForbidden) {
		t.Errorf("a stranger looks: %v", err)
	}
	var shape *objects.ShapeError
	for _, k := range []objects.Keyed{b.keyed("k", 0, 999), b.keyed("k", 0, 500, 500, 500), b.keyed("k", 0, 1001)} {
		if err := b.Receive(r.ctx(), k); !errors.As(err, &shape) {
			t.Errorf("%v received: %v", k.Blobs, err)
		}
	}
	r.pending(p)
	if err := b.Receive(r.ctx(), b.keyed("k", 0, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := r.ended(p); err != nil {
		t.Fatal(err)
	}
	b.close()
	if err := b.Receive(r.ctx(), b.keyed("fine", 0, 6)); err == nil {
		t.Error("received by one who has ended")
	}
	if !r.isPublished("fine") {
		t.Error("what nobody has received has gone")
	}
}

// TestPublishAgain publishes and receives one key repeatedly, while unsuccessful
// receivers close late (B8).
func TestPublishAgain(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false), small(false))
	a, b := r.user(0, 1, 1<<20), r.user(1, 2, 1<<20)
	var late []*objects.File
	for round := range 60 {
		off := uint64(round * 1000)
		p := a.mustPublish(a.keyed("k", off, 5000))
		ino := r.published("k")
		f := r.open(ino)
		if _, err := deliver(r.ctx(), f, 0, 100+round); err != nil {
			t.Fatal(err)
		}
		late = append(late, f)
		if again := a.mustPublish(a.keyed("k", off, 5000)); again != p {
			t.Fatal("the same blobs are another publication")
		}
		if err := b.Receive(r.ctx(), b.keyed("k", 0, 5000)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := r.ended(p); err != nil {
			t.Fatal(err)
		}
		if at := kit.DiffAt(b.bytes()[:5000], 1, int64(off)); at >= 0 {
			t.Fatalf("round %d: other bytes from %d on", round, at)
		}
		if len(late) > 5 {
			if _, err := deliver(r.ctx(), late[0], 0, 5000); !errors.Is(err, metadata.ErrNotExist) {
				t.Fatalf("a reader of %d rounds ago: %v", len(late), err)
			}
			r.close(late[0])
			late = late[1:]
		}
	}
	for _, f := range late {
		r.close(f)
	}
	if r.isPublished("k") {
		t.Fatal("there still")
	}
}

func (r *rig) published(key string) objects.Ino {
	r.t.Helper()
	a, err := r.store.Lookup(r.ctx(), metadata.PublishIno, key)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

// TestPublishMany: many keys are published in few transactions, and their ends are
// reported without a goroutine for each.
func TestPublishMany(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	const n = 1000
	a := r.user(0, 1, n*16)
	var set []objects.Keyed
	for i := range uint64(n) {
		set = append(set, a.keyed(fmt.Sprint("k", i), i*16, 16))
	}
	all, errs := a.Publish(r.ctx(), set)
	ended := make(chan error, n)
	for i, p := range all {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		p.Notify(func(err error) { ended <- err })
	}
	b := r.user(0, 2, n*16)
	for i := range uint64(n / 2) {
		if err := b.Receive(r.ctx(), b.keyed(fmt.Sprint("k", i), i*16, 16)); err != nil {
			t.Fatal(err)
		}
	}
	if at := kit.DiffAt(b.bytes()[:n/2*16], 1, 0); at >= 0 {
		t.Fatalf("other bytes from %d on", at)
	}
	a.close()
	withdrawn := 0
	for range n {
		if err := <-ended; errors.Is(err, objects.ErrWithdrawn) {
			withdrawn++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if withdrawn != n/2 {
		t.Fatalf("%d are withdrawn", withdrawn)
	}
	if left, err := r.store.ReadDir(r.ctx(), metadata.PublishIno, 0, n); err != nil || len(left) != 0 {
		t.Fatalf("%d names are left, %v", len(left), err)
	}
}

// TestPublicationEndsWithMemory: the end of its region, and of its holder, withdraws
// it.
func TestPublicationEndsWithMemory(t *testing.T) {
	kit.Check(t)
	for name, end := range map[string]func(*user) error{
		"region": func(u *user) error { return u.region.Close(u.rig.ctx()) },
		"holder": func(u *user) error { return u.Close(u.rig.ctx()) },
	} {
		t.Run(name, func(t *testing.T) { endsWithMemory(t, end, name == "region") })
	}
}

// TestBlobsOfWhatHasEnded: a claimant of a publication that has ended gets an error for
// that, and never other blobs than the publication had.
func TestBlobsOfWhatHasEnded(t *testing.T) {
	r := newRig(t, small(false), small(false))
	a, b := r.user(0, 1, 1<<20), r.user(1, 2, 1<<20)
	p := a.mustPublish(a.keyed("k", 0, 1000, 2000, 1))
	cl, err := b.Claim(r.ctx(), "k", true)
	if err != nil {
		t.Fatal(err)
	}
	if blobs, berr := cl.Blobs(r.ctx()); berr != nil || !slices.Equal(blobs, []uint64{1000, 1}) {
		t.Errorf("blobs %d, %v", blobs, berr)
	}
	if err = a.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if err = r.ended(p); !errors.Is(err, objects.ErrWithdrawn) {
		t.Errorf("the publisher is told %v", err)
	}
	if blobs, berr := cl.Blobs(r.ctx()); !errors.Is(berr, objects.ErrLost) {
		t.Errorf("after the end: blobs %d, %v", blobs, berr)
	}
	cl.GiveBack(r.ctx())
}

func endsWithMemory(t *testing.T, end func(*user) error, again bool) {
	t.Helper()
	r := newRig(t, small(false), small(false))
	a, b := r.user(0, 1, 1<<20), r.user(1, 2, 1<<20)
	p := a.mustPublish(a.keyed("k", 0, 1000))
	f := r.open(r.published("k"))
	defer r.close(f)
	e := r.store.Listen()
	defer e.Close()
	if err := end(a); err != nil {
		t.Fatal(err)
	}
	if err := r.ended(p); !errors.Is(err, objects.ErrWithdrawn) || r.isPublished("k") {
		t.Fatalf("%v; there still: %v", err, r.isPublished("k"))
	}
	if got := r.heard(e, 1); got != "withdrawn k sim0 1000\n" {
		t.Fatalf("heard %s", got)
	}
	if _, err := deliver(r.ctx(), f, 0, 1000); !errors.Is(err, objects.ErrLost) {
		t.Fatalf("reading it: %v", err)
	}
	if err := f.Deliver(r.ctx(), 0, 1000); !errors.Is(err, objects.ErrLost) {
		t.Fatalf("getting it: %v", err)
	}
	if err := b.Receive(r.ctx(), b.keyed("k", 0, 1000)); !errors.Is(err, metadata.ErrNotExist) {
		t.Fatalf("receiving it: %v", err)
	}
	if again {
		if _, err := a.publish(a.keyed("k", 0, 1000)); !errors.Is(err, objects.ErrLost) {
			t.Fatalf("publishing what has ended: %v", err)
		}
	}
}
