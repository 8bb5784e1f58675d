package metadata_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// storeBench is a benchmark on a store, with the directory of an empty device.
type storeBench struct {
	*testing.B
	s   *metadata.Store
	dir metadata.Ino
}

// benchStores runs a benchmark over each KV, and with a journal.
func benchStores(b *testing.B, run func(storeBench)) {
	b.Helper()
	opens := map[string]func() (metadata.KV, error){
		"mem": func() (metadata.KV, error) { return memkv.New(), nil },
		"badger": func() (metadata.KV, error) {
			return badgerkv.Open(b.Context(), badgerkv.Options{Dir: b.TempDir()})
		},
		"journal": func() (metadata.KV, error) {
			f, err := os.Create(filepath.Join(b.TempDir(), "journal"))
			if err != nil {
				return nil, err
			}
			kv, err := badgerkv.Open(b.Context(), badgerkv.Options{Dir: b.TempDir(), Journal: f})
			return kv, errors.Join(err, f.Close())
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
			run(storeBench{b, s, dev.Ino})
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

// BenchmarkCreateUnlink creates and removes one file per operation, in a directory with
// 1000 other files.
func BenchmarkCreateUnlink(b *testing.B) {
	benchStores(b, func(x storeBench) {
		const window = 1000
		for i := range x.N {
			if _, err := x.s.Create(x.Context(), x.dir, fmt.Sprintf("file%d", i), benchFile()); err != nil {
				x.Fatal(err)
			}
			if i < window {
				continue
			}
			if _, err := x.s.Unlink(x.Context(), x.dir, fmt.Sprintf("file%d", i-window)); err != nil {
				x.Fatal(err)
			}
		}
	})
}

// BenchmarkCreateParallel creates files in one directory from many goroutines.
func BenchmarkCreateParallel(b *testing.B) {
	benchStores(b, func(x storeBench) {
		x.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				name := fmt.Sprintf("%p%d", pb, i)
				if _, err := x.s.Create(x.Context(), x.dir, name, benchFile()); err != nil {
					x.Error(err)
				}
			}
		})
	})
}

// BenchmarkLookup finds files of a directory with 10 000.
func BenchmarkLookup(b *testing.B) {
	benchStores(b, func(x storeBench) {
		const files = 10_000
		names := make([]string, files)
		for i := range names {
			names[i] = fmt.Sprintf("file%d", i)
			if _, err := x.s.Create(x.Context(), x.dir, names[i], benchFile()); err != nil {
				x.Fatal(err)
			}
		}
		x.ResetTimer()
		for i := range x.N {
			if _, err := x.s.Lookup(x.Context(), x.dir, names[i*7919%files]); err != nil {
				x.Fatal(err)
			}
		}
	})
}

// BenchmarkReadDir lists a whole directory with 10 000 files.
func BenchmarkReadDir(b *testing.B) {
	benchStores(b, func(x storeBench) {
		for i := range 10_000 {
			if _, err := x.s.Create(x.Context(), x.dir, fmt.Sprintf("file%d", i), benchFile()); err != nil {
				x.Fatal(err)
			}
		}
		x.ResetTimer()
		for range x.N {
			var after metadata.Cookie
			for n := 1000; n == 1000; {
				entries, err := x.s.ReadDir(x.Context(), x.dir, after, 1000)
				if err != nil {
					x.Fatal(err)
				}
				if n = len(entries); n > 0 {
					after = entries[n-1].Cookie
				}
			}
		}
	})
}

// BenchmarkUpdate changes one inode repeatedly.
func BenchmarkUpdate(b *testing.B) {
	benchStores(b, func(x storeBench) {
		in, err := x.s.Create(x.Context(), x.dir, "file", benchFile())
		if err != nil {
			x.Fatal(err)
		}
		x.ResetTimer()
		for i := range x.N {
			_, err := x.s.Update(x.Context(), in.Ino, func(in *metadata.Inode) error {
				in.Size = uint64(i)
				return nil
			})
			if err != nil {
				x.Fatal(err)
			}
		}
	})
}

// BenchmarkPut creates 256 files with a key, a mapping and an attribute in one call; an
// operation is one file.
func BenchmarkPut(b *testing.B) {
	benchStores(b, func(x storeBench) {
		const batch = 256
		for at := 0; at < x.N; at += batch {
			inos, err := x.s.NewInos(x.Context(), batch)
			if err != nil {
				x.Fatal(err)
			}
			files := make([]metadata.NewFile, batch)
			for i := range files {
				name := fmt.Sprintf("key%d", at+i)
				files[i] = metadata.NewFile{
					Ino: inos[i], Name: name, Key: name, Node: benchFile(), Size: 4096,
					Maps: []metadata.Mapping{{Len: 4096}}, Xattrs: map[string][]byte{"user.hmc.blobs": []byte("4096")},
				}
			}
			if _, err := x.s.Put(x.Context(), x.dir, files); err != nil {
				x.Fatal(err)
			}
		}
	})
}
