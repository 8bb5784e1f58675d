package metadata_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestCacheIsNeverBehind checks that the changes of an operation are visible to every
// reader as soon as it has returned, however many readers add old values to the cache
// meanwhile.
func TestCacheIsNeverBehind(t *testing.T) {
	ctx := t.Context()
	s, err := metadata.Open(ctx, memkv.New(), metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			for i := r; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				in, err := s.Lookup(ctx, dev.Ino, fmt.Sprint("f", i%4))
				if err == nil && in.Name != fmt.Sprint("f", i%4) && in.Nlink > 0 && in.Name[0] != 'f' {
					t.Errorf("lookup found %q", in.Name)
				}
			}
		})
	}
	for w := range 4 {
		writers.Go(func() { changeAndLook(t, s, dev.Ino, fmt.Sprint("f", w)) })
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// changeAndLook repeatedly changes one name, as its only writer, and looks it up after each
// step.
func changeAndLook(t *testing.T, s *metadata.Store, dir metadata.Ino, name string) {
	ctx := t.Context()
	for i := range 300 {
		made, err := s.Create(ctx, dir, name, benchFile())
		if err != nil {
			t.Error(err)
			return
		}
		size := uint64(i + 1)
		if _, err := s.Update(ctx, made.Ino, func(in *metadata.Inode) error { in.Size = size; return nil }); err != nil {
			t.Error(err)
		}
		if in, err := s.Lookup(ctx, dir, name); err != nil || in.Ino != made.Ino || in.Size != size {
			t.Errorf("%s: inode %d of size %d, want %d of %d, %v", name, in.Ino, in.Size, made.Ino, size, err)
		}
		if _, err := s.Unlink(ctx, dir, name); err != nil {
			t.Error(err)
		}
		if in, err := s.Lookup(ctx, dir, name); !errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("%s is found after unlink: %+v, %v", name, in, err)
		}
		if in, err := s.Get(ctx, made.Ino); !errors.Is(err, metadata.ErrNotExist) {
			t.Errorf("inode %d is found after unlink: %+v, %v", made.Ino, in, err)
		}
	}
}
