package objects_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// older is a host tier and a copy of its records that is older than its last files.
type older struct {
	*keyedRig
	copied *memkv.KV
}

// olderFiles is the number of files that the copy does not know.
const olderFiles = 10

func olderBytes(i int) []byte { return kit.Bytes(uint64(100+i), 0, 5000+i) }

// newOlder makes files, copies the records, and makes more files in a second mount, in
// which the file named "gone" was removed.
func newOlder(t *testing.T) *older {
	t.Helper()
	kv := memkv.New()
	o := &older{keyedRig: newKeyed(t, keyedOptions{kv: kv})}
	o.bytes("kept", 1)
	o.bytes("gone", 2)
	o.copied = kv.Copy()
	o.again(func() {})
	for i := range olderFiles {
		o.bytes(fmt.Sprintf("new-%d", i), uint64(100+i))
	}
	if err := o.store.Unlink(o.ctx(), o.root("host"), "gone"); err != nil {
		t.Fatal(err)
	}
	return o
}

// bytes makes a host file by a seed.
func (o *older) bytes(name string, seed uint64) {
	o.t.Helper()
	f := o.create("host", name)
	n := 5000
	if seed >= 100 {
		n += int(seed) - 100
	}
	o.write(f, 0, kit.Bytes(seed, 0, n))
	o.close(f)
}

// mount opens the next store, over other records.
func (o *older) mount(kv metadata.KV) {
	o.t.Helper()
	o.again(func() { o.records(kv) })
}

func (o *older) records(kv metadata.KV) {
	o.t.Helper()
	err := o.meta.Close()
	if err == nil {
		o.meta, err = metadata.Open(o.ctx(), kv, metadata.Options{})
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// aside fails unless the bytes of all files that lost their records are set aside.
func (o *older) aside() {
	o.t.Helper()
	files, err := o.store.Aside()
	if err != nil || len(files) != olderFiles {
		o.t.Errorf("%d files are set aside, %v", len(files), err)
	}
	found := map[int]bool{}
	for _, f := range files {
		got, err := os.ReadFile(f.Path)
		i := len(got) - 5000
		if err != nil || i < 0 || i >= olderFiles || kit.FirstDiff(got, olderBytes(i)) >= 0 || f.Size != uint64(len(got)) {
			o.t.Errorf("%s has %d bytes, %v", f.Path, len(got), err)
			continue
		}
		found[i] = true
	}
	if len(found) != olderFiles {
		o.t.Errorf("only %d of them are different ones", len(found))
	}
}

// end removes what is left.
func (o *older) end() {
	o.t.Helper()
	files, err := o.store.Aside()
	for _, f := range files {
		err = errors.Join(err, o.store.RemoveAside(f.Name))
	}
	for _, name := range []string{"kept", "gone", "fresh"} {
		if failure := o.store.Unlink(o.ctx(), o.root("host"), name); !errors.Is(failure, metadata.ErrNotExist) {
			err = errors.Join(err, failure)
		}
	}
	if err != nil {
		o.t.Error(err)
	}
}

// settled checks the result of a mount with the copy.
func (o *older) settled() {
	o.t.Helper()
	o.aside()
	f := o.create("host", "fresh")
	if got := o.read(f, 0, 10000); len(got) > 0 {
		o.t.Errorf("a new file has %d bytes", len(got))
	}
	o.close(f)
	m := o.memory(1, 8*kib, 7)
	o.gather("set", objects.GatherOptions{}, m.all())
	o.holds("set", kit.Bytes(7, 0, 8*kib))
	kept, err := o.store.Lookup(o.ctx(), o.root("host"), "kept")
	if err != nil {
		o.t.Fatal(err)
	}
	f = o.open(kept.Ino)
	if d := kit.FirstDiff(o.read(f, 0, 10000), kit.Bytes(1, 0, 5000)); d >= 0 {
		o.t.Errorf("what the copy knows differs at %d", d)
	}
	o.close(f)
	gone, err := o.store.Lookup(o.ctx(), o.root("host"), "gone")
	if err != nil || gone.State != objects.StateLost {
		o.t.Errorf("what was removed since the copy is %v, %v", gone.State, err)
	}
}

// TestOlderRecords mounts with a copy of the records from an earlier mount: files
// without records are set aside, and objects without files are lost. Later mounts find
// no differences.
func TestOlderRecords(t *testing.T) {
	kit.Check(t)
	o := newOlder(t)
	o.mount(o.copied)
	if r := o.store.Recovery(); r.Older == "" || r.Aside != olderFiles || r.Missing != 1 || r.AsideUsed < olderFiles*5000 {
		t.Errorf("found %+v", r)
	}
	o.settled()
	next := o.copied.Copy()
	o.again(func() {})
	if r := o.store.Recovery(); r != (objects.Recovery{}) {
		t.Errorf("the next mount found %+v", r)
	}
	o.mount(next) // a copy, but nothing has happened since
	if r := o.store.Recovery(); r.Aside > 0 || r.Missing > 0 {
		t.Errorf("the mount with an equal copy found %+v", r)
	}
	o.aside()
	o.end()
}

// TestOlderRecordsCut stops the first mount with the copy at each operation of the
// records: no bytes are lost, and the mount that succeeds has all of them.
func TestOlderRecordsCut(t *testing.T) {
	kit.Check(t)
	o := newOlder(t)
	var counter faulty.Counter
	kv := faulty.Wrap(o.copied, counter.Inject)
	o.again(func() {
		o.records(kv)
		for n := 0; ; n++ {
			counter.Arm(n)
			s, err := objects.Open(o.ctx(), objects.Options{
				Meta: o.meta, Engine: o.engine, Devices: o.devs, Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
			})
			hit := counter.Disarm()
			if err != nil && !errors.Is(err, faulty.ErrInjected) {
				t.Fatal(err)
			}
			if err == nil {
				if err = s.Close(o.ctx(), objects.CloseOptions{Keep: true}); err != nil {
					t.Fatal(err)
				}
			}
			if !hit {
				t.Logf("%d operations", n)
				return
			}
			if err == nil {
				t.Fatalf("operation %d failed, and nobody minded", n)
			}
		}
	})
	o.settled()
	o.end()
}

// cutKV is a KV of which something may have been cut.
type cutKV struct {
	metadata.KV
	cut bool
}

func (kv *cutKV) Cut() bool { return kv.cut }

func (kv *cutKV) Settle() { kv.cut = false }

// TestRecordsCut mounts with the right records, which may be incomplete: nothing is
// removed.
func TestRecordsCut(t *testing.T) {
	kit.Check(t)
	kv := &cutKV{KV: memkv.New()}
	r := newKeyed(t, keyedOptions{kv: kv})
	open := func(cut bool) *objects.Store {
		kv.cut = cut
		s, err := objects.Open(t.Context(), objects.Options{
			Meta: r.meta, Engine: r.engine, Devices: r.devs,
			Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r.again(func() {
		for i, cut := range []bool{false, true} {
			r.put(uint64(5000+2*i), kit.Bytes(1, 0, 100))
			r.put(uint64(5001+2*i), nil) // there is nothing to keep of it
			// The daemon died while it copied this over a file without a record.
			r.put(uint64(6000+i), kit.Bytes(2, 0, 200))
			r.put(uint64(6000+i)|redoBit, redoRecord(1<<40, 200))
			s := open(cut)
			if kv.cut {
				t.Error("the cut is not settled")
			}
			files, err := s.Aside()
			if err != nil || len(files) != 2*i {
				t.Errorf("cut %v: %d files are set aside, %v", cut, len(files), err)
			}
			for _, f := range files {
				if err := s.RemoveAside(f.Name); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(t.Context(), objects.CloseOptions{Keep: true}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNumbersAboveTheTier has files in the tier under numbers that the records have not
// assigned yet: none is assigned to a new object.
func TestNumbersAboveTheTier(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	r.again(func() { r.put(123_456, kit.Bytes(1, 0, 100)) })
	f := r.create("host", "f")
	if f.Ino() <= 123_456 {
		t.Errorf("number %d was given", f.Ino())
	}
	if got := r.read(f, 0, 1000); len(got) > 0 {
		t.Errorf("a new file has %d bytes", len(got))
	}
	r.close(f)
	// A file that appears while the store is open does not reserve its number, and its
	// bytes are not seen.
	next := uint64(f.Ino()) + 1
	r.put(next, kit.Bytes(1, 0, 100))
	f = r.create("host", "g")
	if got := r.read(f, 0, 1000); uint64(f.Ino()) != next || len(got) > 0 {
		t.Errorf("file %d has %d bytes", f.Ino(), len(got))
	}
	r.close(f)
	files, err := r.store.Aside()
	if err != nil || len(files) != 1 || files[0].ID != next {
		t.Fatalf("set aside are %v, %v", files, err)
	}
	for _, name := range []string{"f", "g"} {
		err = errors.Join(err, r.store.Unlink(t.Context(), r.root("host"), name))
	}
	if err = errors.Join(err, r.store.RemoveAside(files[0].Name)); err != nil {
		t.Error(err)
	}
}

// TestFilesOfEarlierRecords mounts records without a bond, from an hmcfs that made host
// files when they were first opened: objects without a file are empty.
func TestFilesOfEarlierRecords(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	var ino objects.Ino
	r.again(func() {
		root, err := r.meta.Lookup(t.Context(), metadata.RootIno, "host")
		if err != nil {
			t.Fatal(err)
		}
		in, err := r.meta.Create(t.Context(), root.Ino, "never opened", metadata.Node{Mode: metadata.TypeRegular | 0o600})
		err = errors.Join(err, r.meta.SetDeviceBond(t.Context(), "host", metadata.Bond{}), r.tier.SetNumber("records", 0))
		if err != nil {
			t.Fatal(err)
		}
		ino = in.Ino
	})
	if r := r.store.Recovery(); r != (objects.Recovery{}) {
		t.Errorf("found %+v", r)
	}
	if a := r.attr(ino); a.State != objects.StateLive || a.Size != 0 {
		t.Errorf("it is %v, %d bytes", a.State, a.Size)
	}
	if err := r.store.Unlink(t.Context(), r.root("host"), "never opened"); err != nil {
		t.Error(err)
	}
}
