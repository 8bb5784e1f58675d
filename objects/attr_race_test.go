package objects_test

import (
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAttrWhileClosing reads attributes while the last handle of a file is closed: they
// are never older than the writes before the call.
func TestAttrWhileClosing(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(false))
	f := r.create("sim0", "f")
	ino := f.Ino()
	r.close(f)
	var written atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for written.Load() < 20_000 {
			f, err := r.store.OpenFile(r.ctx(), ino)
			if err != nil {
				t.Error(err)
				return
			}
			n, err := f.WriteAt(r.ctx(), []byte{1}, objects.Write{Append: true})
			if n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			written.Add(1)
			if err := f.Close(r.ctx()); err != nil {
				t.Error(err)
			}
		}
	}()
	defer func() { <-done }()
	for written.Load() < 20_000 && !t.Failed() {
		least := written.Load()
		a, err := r.store.Attr(r.ctx(), ino)
		if err != nil || a.Size < least {
			t.Errorf("%d bytes after %d were written, %v", a.Size, least, err)
			break
		}
	}
}
