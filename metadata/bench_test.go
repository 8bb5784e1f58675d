package metadata_test

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/metadata/memkv"
)

// benchStores runs a benchmark over both KVs, each with an empty device.
func benchStores(b *testing.B, fn func(b *testing.B, s *metadata.Store, dir metadata.Ino)) {
	b.Helper()
	opens := map[string]func() (metadata.KV, error){
		"mem": func() (metadata.KV, error) { return memkv.New(), nil },
		"badger": func() (metadata.KV, error) {
			return badgerkv.Open(b.Context(), badgerkv.Options{Dir: b.TempDir()})
		},
	}
	for name, open := range opens {
		b.Run(name, func(b *testing.B) {
			kv, err := open()
			if err != nil {
				b.Fatal(err)
			}
			s, err := metadata.Open(b.Context(), kv, metadata.Options{})
			if err != nil {
				b.Fatal(err)
			}
			dev, err := s.EnsureDevice(b.Context(), "sim0", 0o755, 0, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			fn(b, s, dev.Ino)
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// benchFile is a plain file.
func benchFile() metadata.Node {
	return metadata.Node{Mode: metadata.TypeRegular | 0o644, UID: 1000, GID: 1000}
}

// BenchmarkCreateUnlink makes and removes one file per operation, in a
// directory where 1000 others stay.
func BenchmarkCreateUnlink(b *testing.B) {
	benchStores(b, func(b *testing.B, s *metadata.Store, dir metadata.Ino) {
		const window = 1000
		for i := range b.N {
			if _, err := s.Create(b.Context(), dir, fmt.Sprintf("file%d", i), benchFile()); err != nil {
				b.Fatal(err)
			}
			if i < window {
				continue
			}
			if _, err := s.Unlink(b.Context(), dir, fmt.Sprintf("file%d", i-window)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCreateParallel makes files of many goroutines in one directory.
func BenchmarkCreateParallel(b *testing.B) {
	benchStores(b, func(b *testing.B, s *metadata.Store, dir metadata.Ino) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				name := fmt.Sprintf("%p%d", pb, i)
				if _, err := s.Create(b.Context(), dir, name, benchFile()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkLookup finds files of a directory with 10 000.
func BenchmarkLookup(b *testing.B) {
	benchStores(b, func(b *testing.B, s *metadata.Store, dir metadata.Ino) {
		const files = 10_000
		names := make([]string, files)
		for i := range names {
			names[i] = fmt.Sprintf("file%d", i)
			if _, err := s.Create(b.Context(), dir, names[i], benchFile()); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		for i := range b.N {
			if _, err := s.Lookup(b.Context(), dir, names[i*7919%files]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadDir lists a directory with 10 000 files whole.
func BenchmarkReadDir(b *testing.B) {
	benchStores(b, func(b *testing.B, s *metadata.Store, dir metadata.Ino) {
		for i := range 10_000 {
			if _, err := s.Create(b.Context(), dir, fmt.Sprintf("file%d", i), benchFile()); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		for range b.N {
			var after metadata.Cookie
			for n := 1000; n == 1000; {
				entries, err := s.ReadDir(b.Context(), dir, after, 1000)
				if err != nil {
					b.Fatal(err)
				}
				if n = len(entries); n > 0 {
					after = entries[n-1].Cookie
				}
			}
		}
	})
}

// BenchmarkUpdate changes one inode again and again.
func BenchmarkUpdate(b *testing.B) {
	benchStores(b, func(b *testing.B, s *metadata.Store, dir metadata.Ino) {
		in, err := s.Create(b.Context(), dir, "file", benchFile())
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for i := range b.N {
			_, err := s.Update(b.Context(), in.Ino, func(in *metadata.Inode) error {
				in.Size = uint64(i)
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
