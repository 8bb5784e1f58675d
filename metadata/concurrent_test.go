package metadata_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// onBoth runs a test over both KVs.
func onBoth(t *testing.T, fn func(t *testing.T, s *metadata.Store, dev metadata.Ino)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) metadata.KV{
		"memkv":    func(*testing.T) metadata.KV { return memkv.New() },
		"badgerkv": func(t *testing.T) metadata.KV { t.Helper(); return openBadger(t, t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := metadata.Open(t.Context(), open(t), metadata.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dev, err := s.EnsureDevice(t.Context(), "sim0", 0o755, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			fn(t, s, dev.Ino)
			checkClean(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func workers(n int, fn func(worker int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// TestOneWinner has 32 goroutines create one name: exactly one succeeds.
func TestOneWinner(t *testing.T) {
	onBoth(t, func(t *testing.T, s *metadata.Store, dev metadata.Ino) {
		for round := range 10 {
			var won atomic.Int32
			workers(32, func(int) {
				_, err := s.Create(t.Context(), dev, fmt.Sprint("name", round), benchFile())
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, metadata.ErrExist):
					t.Errorf("Create: %v", err)
				}
			})
			if won.Load() != 1 {
				t.Errorf("%d of 32 have created the file", won.Load())
			}
		}
	})
}

// TestListWhileChanging lists a directory while other names are added, removed and renamed:
// each name that stays is listed exactly once.
func TestListWhileChanging(t *testing.T) {
	onBoth(t, func(t *testing.T, s *metadata.Store, dev metadata.Ino) {
		metadata.CollideNames(s, weakHash)
		const still = 60
		for i := range still {
			if _, err := s.Create(t.Context(), dev, fmt.Sprint("still", i), benchFile()); err != nil {
				t.Fatal(err)
			}
		}
		var stop atomic.Bool
		var wg sync.WaitGroup
		for worker := range 2 {
			wg.Go(func() { churn(t, s, dev, worker, &stop) })
		}
		for round := range 20 {
			seen := map[string]int{}
			for _, e := range listAll(t, s, dev, 1+round%9) {
				seen[e.Name]++
			}
			for i := range still {
				if n := seen[fmt.Sprint("still", i)]; n != 1 {
					t.Errorf("still%d is listed %d times", i, n)
				}
			}
		}
		stop.Store(true)
		wg.Wait()
	})
}

// churn creates, renames and removes files until it is stopped.
func churn(t *testing.T, s *metadata.Store, dev metadata.Ino, worker int, stop *atomic.Bool) {
	t.Helper()
	for i := 0; !stop.Load(); i++ {
		a, b := fmt.Sprintf("a%d-%d", worker, i%20), fmt.Sprintf("b%d-%d", worker, i%7)
		if _, err := s.Create(t.Context(), dev, a, benchFile()); err != nil && !errors.Is(err, metadata.ErrExist) {
			t.Errorf("Create: %v", err)
			return
		}
		if _, err := s.Rename(t.Context(), metadata.Rename{From: dev, Name: a, To: dev, NewName: b}); err != nil {
			t.Errorf("Rename: %v", err)
			return
		}
		if i%3 == 0 {
			if _, err := s.Unlink(t.Context(), dev, b); err != nil {
				t.Errorf("Unlink: %v", err)
				return
			}
		}
	}
}

// TestNoCircle has many goroutines rename directories into each other.
func TestNoCircle(t *testing.T) {
	onBoth(t, func(t *testing.T, s *metadata.Store, dev metadata.Ino) {
		var dirs []metadata.Ino
		for i := range 6 {
			in, err := s.Create(t.Context(), dev, fmt.Sprint("d", i), dirNode())
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, in.Ino)
		}
		workers(4, func(worker int) {
			r := rand.New(rand.NewPCG(uint64(worker), rand.Uint64()))
			for range 150 {
				in, err := s.Get(t.Context(), dirs[r.IntN(len(dirs))])
				if err != nil {
					t.Error(err)
					return
				}
				to := append([]metadata.Ino{dev}, dirs...)[r.IntN(len(dirs)+1)]
				_, err = s.Rename(t.Context(), metadata.Rename{
					From: in.Parent, Name: in.Name, To: to, NewName: in.Name,
				})
				if err != nil && !errors.Is(err, metadata.ErrInvalid) && !errors.Is(err, metadata.ErrNotExist) {
					t.Errorf("Rename: %v", err)
				}
			}
		})
		for _, ino := range dirs {
			if path, err := s.PathOf(t.Context(), ino); err != nil {
				t.Errorf("path of %d: %q, %v", ino, path, err)
			}
		}
	})
}

// TestConcurrentMix runs all kinds of operations concurrently on few names, and relies on
// Check to detect errors.
func TestConcurrentMix(t *testing.T) {
	onBoth(t, func(t *testing.T, s *metadata.Store, dev metadata.Ino) {
		metadata.CollideNames(s, weakHash)
		ctx := t.Context()
		dirs := []metadata.Ino{dev}
		for i := range 3 {
			in, err := s.Create(ctx, dev, fmt.Sprint("dir", i), dirNode())
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, in.Ino)
		}
		allowed := []error{
			nil, metadata.ErrExist, metadata.ErrNotExist, metadata.ErrIsDir, metadata.ErrNotDir,
			metadata.ErrNotEmpty, metadata.ErrInvalid, metadata.ErrNoXattr,
		}
		workers(6, func(worker int) {
			r := rand.New(rand.NewPCG(uint64(worker), rand.Uint64()))
			for range 120 {
				err := mixedStep(t, s, r, dirs)
				ok := false
				for _, want := range allowed {
					ok = ok || errors.Is(err, want)
				}
				if !ok {
					t.Errorf("unexpected: %v", err)
				}
			}
		})
	})
}

func mixedStep(t *testing.T, s *metadata.Store, r *rand.Rand, dirs []metadata.Ino) error {
	t.Helper()
	ctx := t.Context()
	from, to := dirs[r.IntN(len(dirs))], dirs[r.IntN(len(dirs))]
	name, other := fmt.Sprint("n", r.IntN(6)), fmt.Sprint("n", r.IntN(6))
	in, err := s.Lookup(ctx, from, name)
	if err != nil {
		_, err = s.Create(ctx, from, name, []metadata.Node{benchFile(), dirNode()}[r.IntN(2)])
		return err
	}
	switch r.IntN(8) {
	case 0:
		_, err = s.Unlink(ctx, from, name)
	case 1:
		_, err = s.Rmdir(ctx, from, name)
	case 2:
		_, err = s.Link(ctx, in.Ino, to, other)
	case 3:
		err = s.SetXattr(ctx, in.Ino, "user.x", []byte(name), metadata.XattrFlags(r.IntN(3)))
	case 4:
		err = s.BindKey(ctx, in.Ino, other)
	case 5:
		_, err = s.SaveContent(ctx, in.Ino, nil, bigMappings(r.IntN(5)))
	default:
		flags := metadata.RenameFlags(r.IntN(3))
		_, err = s.Rename(ctx, metadata.Rename{From: from, Name: name, To: to, NewName: other, Flags: flags})
	}
	return err
}

// TestInosAreUnique allocates numbers from many goroutines.
func TestInosAreUnique(t *testing.T) {
	onBoth(t, func(t *testing.T, s *metadata.Store, dev metadata.Ino) {
		var mu sync.Mutex
		seen := map[metadata.Ino]bool{}
		workers(8, func(worker int) {
			for i := range 700 { // more than one batch in all
				in, err := s.Create(t.Context(), dev, fmt.Sprint(worker, "-", i), benchFile())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[in.Ino] || in.Ino < metadata.FirstIno {
					t.Errorf("inode %d is given again", in.Ino)
				}
				seen[in.Ino] = true
				mu.Unlock()
			}
		})
		for ino := range seen {
			if ino >= s.NextIno() {
				t.Errorf("%d was given, but the next is %d", ino, s.NextIno())
			}
		}
	})
}
