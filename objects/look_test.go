package objects_test

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestReadersOfWhatIsCut truncates and rewrites a file whose content has no zeros and
// no holes: readers of each kind see its bytes or its end, and no zeros.
func TestReadersOfWhatIsCut(t *testing.T) {
	const size, rounds = 3 * 4096, 20_000
	content := kit.Bytes(1, 0, size)
	for i := range content {
		content[i] |= 1
	}
	for name, read := range map[string]func(r *rig, f, to *objects.File) ([]byte, error){
		"ReadAt": func(r *rig, f, _ *objects.File) ([]byte, error) {
			p := make([]byte, size)
			n, err := f.ReadAt(r.ctx(), p, 0)
			return p[:n], err
		},
		"Views": func(r *rig, f, _ *objects.File) ([]byte, error) {
			v, err := f.Views(r.ctx(), 0, size)
			if err != nil {
				return nil, err
			}
			defer v.Release()
			return bytes.Join(v.Slices, nil), nil
		},
		"CopyRange": func(r *rig, f, to *objects.File) ([]byte, error) {
			n, err := r.store.CopyRange(r.ctx(), objects.CopyRange{Dst: to, Src: f, N: size})
			p := make([]byte, n)
			if err == nil && n > 0 {
				_, err = to.ReadAt(r.ctx(), p, 0)
			}
			return p, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			r := newRig(t, small(name == "Views"))
			f, to := r.create("sim0", "f"), r.create("sim0", "to")
			defer func() { r.close(f); r.close(to) }()
			r.write(f, 0, content)
			var over atomic.Bool
			var group sync.WaitGroup
			group.Go(func() {
				defer over.Store(true)
				if err := cutAndWrite(r, f, content, rounds); err != nil {
					t.Error(err)
				}
			})
			group.Go(func() {
				for !over.Load() && !t.Failed() {
					got, err := read(r, f, to)
					if at := kit.FirstDiff(got, content[:len(got)]); err != nil || at >= 0 {
						t.Errorf("%d bytes that differ at %d, %v", len(got), at, err)
					}
				}
			})
			group.Wait()
		})
	}
}

// cutAndWrite truncates a file to 0 and writes it again, repeatedly.
func cutAndWrite(r *rig, f *objects.File, content []byte, rounds int) error {
	none := uint64(0)
	for range rounds {
		if _, err := r.store.SetAttr(r.ctx(), f.Ino(), objects.Change{Size: &none}); err != nil {
			return err
		}
		if _, err := f.WriteAt(r.ctx(), content, objects.Write{}); err != nil {
			return err
		}
	}
	return nil
}
