package objects_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// progress keeps what it is told.
type progress struct{ objects.Reading }

func (p *progress) Delivered(all []objects.Stretch) { p.Reading.Delivered = slices.Clone(all) }
func (p *progress) Receives(yes bool)               { p.Reading.Receives = yes }

// reader is an open file of publish/, of which it has n bytes when the store is killed.
type reader struct {
	*progress
	f *objects.File
}

func (k *keptRig) reader(ino objects.Ino, n int) reader {
	k.t.Helper()
	r := reader{&progress{}, k.rig.open(ino)}
	r.f.Track(r)
	if _, err := deliver(k.ctx(), r.f, 0, n); err != nil {
		k.t.Fatal(err)
	}
	return r
}

// again opens the file of a reader after a kill.
func (k *keptRig) again(r reader) reader {
	k.t.Helper()
	next := reader{progress: r.progress}
	var err error
	if next.f, err = r.Open(k.ctx(), k.store, r.f.Ino(), next); err != nil {
		k.t.Fatal(err)
	}
	return next
}

// rest reads the bytes from n on, checks them, and closes the file.
func (k *keptRig) rest(r reader, n int, want []byte) {
	k.t.Helper()
	got, err := deliver(k.ctx(), r.f, uint64(n), len(want)-n)
	if err != nil || !bytes.Equal(got, want[n:]) {
		k.t.Errorf("the rest: %d bytes, different at %d, %v", len(got), kit.FirstDiff(got, want[n:]), err)
	}
	k.close(r.f)
}

// refused checks that a reader gets no byte, and closes its file.
func (k *keptRig) refused(r reader) {
	k.t.Helper()
	if _, err := deliver(k.ctx(), r.f, 0, 10); !errors.Is(err, metadata.ErrNotExist) {
		k.t.Errorf("a reader that is not the receiver: %v", err)
	}
	k.close(r.f)
}

// TestReadingAgain kills stores with readers of a publication.
func TestReadingAgain(t *testing.T) {
	const n, half = 100_000, 40_000
	k := newKeptRig(t, small(false))
	data := kit.Bytes(1, 0, n)
	for name, test := range map[string]func(ino objects.Ino){
		"read in part": func(ino objects.Ino) {
			r, other := k.reader(ino, half), k.reader(ino, half)
			k.kill()
			r, other = k.again(r), k.again(other)
			k.store.ReleaseUnclaimed(k.ctx())
			k.rest(r, half, data)
			k.refused(other)
		},
		"read in part, twice": func(ino objects.Ino) {
			r := k.reader(ino, half)
			k.kill()
			r = k.again(r)
			k.store.ReleaseUnclaimed(k.ctx())
			if _, err := deliver(k.ctx(), r.f, half, half); err != nil {
				t.Error(err)
			}
			k.kill()
			k.rest(k.again(r), 2*half, data)
		},
		"received": func(ino objects.Ino) {
			other, r := k.reader(ino, half), k.reader(ino, n)
			k.kill()
			if _, err := k.store.OpenFile(k.ctx(), ino); !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("a file that was received opens with %v", err)
			}
			r, other = k.again(r), k.again(other)
			k.store.ReleaseUnclaimed(k.ctx())
			k.refused(other)
			k.rest(r, 0, data) // once more, as the kernel asks what was not answered
		},
		"received, and its name removed": func(ino objects.Ino) {
			other, r := k.reader(ino, half), k.reader(ino, n)
			r.f.Settle(k.ctx())
			k.kill()
			r, other = k.again(r), k.again(other)
			k.store.ReleaseUnclaimed(k.ctx())
			k.refused(other)
			k.rest(r, 0, data)
		},
		"received by a reader that is gone": func(ino objects.Ino) {
			k.reader(ino, n)
			k.kill()
			k.store.ReleaseUnclaimed(k.ctx())
		},
		"received by a reader of another mount": func(ino objects.Ino) {
			k.reader(ino, n)
			k.anew = true
			k.kill()
			k.anew = false
			if k.isPublished("k") {
				t.Error("the new mount has the name")
			}
		},
		"not received after all": func(ino objects.Ino) {
			r, other := k.reader(ino, half), k.reader(ino, half)
			r.Receives(true)
			k.kill()
			r = k.again(r)
			if r.Reading.Receives {
				t.Error("the reader passes for the receiver")
			}
			other = k.again(other)
			k.store.ReleaseUnclaimed(k.ctx())
			k.rest(other, half, data)
			k.refused(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := k.t
			defer func() { k.t = outer }()
			k.t = t
			ino := k.mustOffer("sim0", "k", 1, n)
			test(ino)
			if k.isPublished("k") {
				t.Error("the name is still there")
			}
			k.checkLeases()
			if used := k.used("sim0"); used != 0 {
				t.Errorf("%v of the device are in use", used)
			}
		})
	}
}

// TestSessionIsReadAgain kills stores with a reader of a publication that is memory of a session: the reader has it when both come
// back, and the session is told so, once.
func TestSessionIsReadAgain(t *testing.T) {
	const n = 5000
	for name, received := range map[string]int{"in part": 2000, "received": n} {
		t.Run(name, func(t *testing.T) {
			k := newKeptRig(t, sim.Params{Size: 32 << 20})
			k.absent = 3 * time.Second
			memory := kit.Memfd(t, 1, lastingSize)
			a := k.lasting("a", memory, 4)
			_, errs := a.Publish(objects.WithCall(k.ctx(), 7, false), []objects.Keyed{a.part("k", 1000, n)})
			noError(t, errors.Join(errs...))
			in, err := k.store.Lookup(k.ctx(), metadata.PublishIno, "k")
			noError(t, err)
			r := k.reader(in.Ino, received)
			k.kill()
			r = k.again(r)
			k.store.ReleaseUnclaimed(k.ctx())
			a = k.lasting("a", memory, 4)
			a.Continue(k.ctx())
			signals, errs := a.Publish(objects.WithCall(k.ctx(), 7, true), []objects.Keyed{a.part("k", 1000, n)})
			noError(t, errors.Join(errs...))
			k.rest(r, received%n, kit.Bytes(1, 1000, n))
			noError(t, signals[0].Wait(k.ctx()))
			if k.isPublished("k") {
				t.Error("the name is still there")
			}
			noError(t, a.Close(k.ctx()))
		})
	}
}

// TestCloseWhileReceiving closes one descriptor of a file of publish/, as a program does that starts another, while the last bytes
// are read by another one.
func TestCloseWhileReceiving(t *testing.T) {
	const n = 10_000
	k := newKeptRig(t, small(false))
	f := k.rig.open(k.mustOffer("sim0", "k", 1, n))
	closed := false
	f.Track(whenReceiving(func() {
		f.Settle(k.ctx())
		closed = true
	}))
	got, err := deliver(k.ctx(), f, 0, n)
	if want := kit.Bytes(1, 0, n); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, different at %d, %v", len(got), kit.FirstDiff(got, want), err)
	}
	k.close(f)
	if !closed || k.isPublished("k") {
		t.Errorf("closed is %v, the name is there: %v", closed, k.isPublished("k"))
	}
}

// whenReceiving is called when a reader is about to be the receiver.
type whenReceiving func()

func (whenReceiving) Delivered([]objects.Stretch) {}
func (r whenReceiving) Receives(yes bool) {
	if yes {
		r()
	}
}
