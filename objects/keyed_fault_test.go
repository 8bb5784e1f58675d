package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	metafaulty "github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// keyedLife is run with a fault at every operation (case C14): keys are set, replaced,
// read, given a time to live and removed.
type keyedLife struct {
	*keyedRig
	old, fresh *memory
	keys       []string
	// arm enables the fault, and disarm disables it.
	arm, disarm func()
}

func (l *keyedLife) set(m *memory) []objects.Keyed {
	set := make([]objects.Keyed, len(l.keys))
	for i, key := range l.keys {
		set[i] = objects.Keyed{Key: key, Blobs: m.blobs([2]uint64{uint64(i) * 7, 5000}, [2]uint64{20000 + uint64(i), 3000})}
	}
	return set
}

func (l *keyedLife) bytes(m *memory, i int) []byte {
	all := m.bytes()
	return append(bytes.Clone(all[i*7:i*7+5000]), all[20000+i:23000+i]...)
}

// is fails unless the i-th key names an object with the bytes of one of the allowed
// memories; nil as the first, or none, also allows that the key names no object.
func (l *keyedLife) is(i int, allowed ...*memory) {
	l.t.Helper()
	none := len(allowed) == 0 || allowed[0] == nil
	ino, err := l.store.KeyIno(l.ctx(), l.keys[i])
	if errors.Is(err, metadata.ErrNotExist) && none {
		return
	}
	if err != nil {
		l.t.Fatalf("key %d: %v", i, err)
	}
	f := l.open(ino)
	defer l.close(f)
	got := l.read(f, 0, int(f.Size()))
	for _, m := range allowed {
		if m != nil && bytes.Equal(got, l.bytes(m, i)) {
			return
		}
	}
	l.t.Fatalf("key %d: %d bytes that nobody has set", i, len(got))
}

func (l *keyedLife) run() {
	step := func(what string, fn func() []error, before, after *memory) {
		l.arm()
		errs := fn()
		l.disarm()
		for i, err := range errs {
			switch {
			case err == nil && after == nil:
				l.absent(l.keys[i])
			case err == nil:
				l.is(i, after)
			case after == nil:
				l.is(i, nil, before)
			default:
				l.is(i, before, after)
			}
		}
		l.noStrays(l.ctx())
		if l.t.Failed() {
			l.t.Fatalf("after %s: %v", what, errs)
		}
	}
	gather := func(m *memory, rule objects.ExistingRule) func() []error {
		return func() []error {
			var errs []error
			for _, g := range l.user.Gather(l.ctx(), l.set(m), objects.GatherOptions{Existing: rule}) {
				errs = append(errs, g.Err)
			}
			return errs
		}
	}
	step("set", gather(l.old, objects.ExistingFail), nil, l.old)
	gather(l.old, objects.ExistingSkip)()
	step("replace", gather(l.fresh, objects.ExistingReplace), l.old, l.fresh)
	gather(l.fresh, objects.ExistingReplace)()
	step("read", func() []error {
		var errs []error
		for _, k := range l.set(l.old) {
			errs = append(errs, l.user.Scatter(l.ctx(), objects.Scatter{Keyed: k, Exact: true}))
		}
		return errs
	}, l.fresh, l.fresh)
	step("remove", func() []error { return l.user.Drop(l.ctx(), l.keys) }, l.fresh, nil)
}

// fuse fails one operation: the n-th that it is asked about while it is armed.
type fuse struct {
	left    atomic.Int64
	burning atomic.Bool
	hit     atomic.Bool
}

func (f *fuse) blow(what any) error {
	if !f.burning.Load() || f.left.Add(-1) != 0 {
		return nil
	}
	f.hit.Store(true)
	return fmt.Errorf("%w: %v", errInjected, what)
}

// everywhere runs the life once for each operation, with that operation failing.
func everywhere(t *testing.T, options func(f *fuse) keyedOptions) {
	for n := int64(1); ; n++ {
		if n > 2000 {
			t.Fatal("still failing operations")
		}
		f := &fuse{}
		f.left.Store(n)
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := &keyedLife{keyedRig: newKeyed(t, options(f)), keys: manyKeys("key", 3)}
			l.old, l.fresh = l.memory(1, 32*kib, 1), l.memory(2, 32*kib, 2)
			l.arm = func() { f.burning.Store(true) }
			l.disarm = func() { f.burning.Store(false) }
			l.run()
		})
		if !ok || !f.hit.Load() {
			return
		}
	}
}

// TestKeyedErrors fails the n-th operation of the devices, for every n.
func TestKeyedErrors(t *testing.T) {
	kit.Check(t)
	everywhere(t, func(f *fuse) keyedOptions {
		return keyedOptions{hook: func(op devfaulty.Op) error {
			if op.Kind == devfaulty.Free || op.Kind == devfaulty.Usage || op.Kind == devfaulty.RemoveFile {
				return nil // what can't be given back leaks by definition
			}
			return f.blow(op.Kind)
		}}
	})
}

// TestKeyedMetadataErrors is TestKeyedErrors for the key-value seam.
func TestKeyedMetadataErrors(t *testing.T) {
	kit.Check(t)
	everywhere(t, func(f *fuse) keyedOptions {
		return keyedOptions{kv: metafaulty.Wrap(memkv.New(), func(op metafaulty.Op) error { return f.blow(op) })}
	})
}

// TestGatherReaders reads an object repeatedly while it is replaced: each read is of
// one version.
func TestGatherReaders(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	const size = 96 * kib
	versions := []*memory{r.memory(1, size, 1), r.memory(1, size, 2)}
	halves := [][2]uint64{{0, size / 2}, {size / 2, size / 2}}
	r.gather("k", objects.GatherOptions{}, versions[0].blobs(halves...))
	stop := make(chan struct{})
	failed := make(chan error, 3)
	for reader := range 3 {
		to := r.memory(2, size, 9)
		go func() {
			failed <- func() error {
				for {
					select {
					case <-stop:
						return nil
					default:
					}
					s := objects.Scatter{Keyed: objects.Keyed{Key: "k", Blobs: to.blobs(halves...)}}
					if err := r.user.Scatter(r.ctx(), s); err != nil {
						return err
					}
					got := to.bytes()
					if kit.DiffAt(got, 1, 0) >= 0 && kit.DiffAt(got, 2, 0) >= 0 {
						return fmt.Errorf("reader %d: a mix: differs from the first at %d, from the second at %d",
							reader, kit.DiffAt(got, 1, 0), kit.DiffAt(got, 2, 0))
					}
				}
			}()
		}()
	}
	for i := range 200 {
		r.gather("k", objects.GatherOptions{Existing: objects.ExistingReplace}, versions[i%2].blobs(halves...))
	}
	close(stop)
	for range 3 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	r.noStrays(r.ctx())
}
