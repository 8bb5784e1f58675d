package metadata_test

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
)

// put creates n files named prefix0, prefix1, … of one device.
func (e *errorsEnv) put(dir metadata.Ino, prefix string, n int, fill func(*metadata.NewFile)) error {
	e.t.Helper()
	inos, err := e.s.NewInos(e.t.Context(), n)
	if err != nil {
		return err
	}
	files := make([]metadata.NewFile, n)
	for i := range files {
		files[i] = metadata.NewFile{
			Ino: inos[i], Name: fmt.Sprint(prefix, i), Node: benchFile(), Device: "sim0",
			Maps: bigMappings(2), Binding: []byte("b"),
		}
		fill(&files[i])
	}
	results, err := e.s.Put(e.t.Context(), dir, files)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

func keyed(f *metadata.NewFile) {
	f.Key, f.Expires = "k-"+f.Name, metadata.Timespec{Sec: 5}
	f.Xattrs = map[string][]byte{"user.hmc.blobs": []byte("1,2")}
}

// publishScript goes on where the changes end.
func publishScript() []scriptOp {
	replace := func(f *metadata.NewFile) {
		keyed(f)
		f.Key, f.Replace = "k-p1", true
	}
	return []scriptOp{
		{"put", func(e *errorsEnv) error { return e.put(e.dev, "p", 3, keyed) }},
		{"put over a name and a key", func(e *errorsEnv) error { return e.put(e.dev, "p", 1, replace) }},
		{"publish", func(e *errorsEnv) error {
			_, err := e.s.Publish(e.t.Context(), e.dev, "p2", "pub")
			return err
		}},
		{"put into publish", func(e *errorsEnv) error { return e.put(metadata.PublishIno, "q", 2, func(*metadata.NewFile) {}) }},
		{"expire", func(e *errorsEnv) error {
			return e.s.Expire(e.t.Context(), e.ino("sim0/p1"), metadata.Timespec{Sec: 6})
		}},
		{"expire never", func(e *errorsEnv) error {
			return e.s.Expire(e.t.Context(), e.ino("sim0/p1"), metadata.Timespec{})
		}},
		{"take", func(e *errorsEnv) error {
			in, err := e.sure.Lookup(e.t.Context(), metadata.PublishIno, "q0")
			if err != nil {
				return err
			}
			return e.s.Take(e.t.Context(), in.Ino)
		}},
		{"unlink what is taken", func(e *errorsEnv) error {
			_, err := e.s.Unlink(e.t.Context(), metadata.PublishIno, "q0")
			return err
		}},
		{"rename out of publish", func(e *errorsEnv) error {
			_, err := e.s.Rename(e.t.Context(), metadata.Rename{
				From: metadata.PublishIno, Name: "q1", To: e.dev, NewName: "p1",
			})
			return err
		}},
		{"move out of publish", func(e *errorsEnv) error {
			_, err := e.s.MoveDevice(e.t.Context(), metadata.Rename{
				From: metadata.PublishIno, Name: "pub", To: e.dev1, NewName: "received",
			}, "sim1", 4, bigMappings(1))
			return err
		}},
		{"ensure dir", func(e *errorsEnv) error {
			_, err := e.s.EnsureDir(e.t.Context(), e.dev, ".keys", metadata.Node{Mode: 0o700})
			return err
		}},
	}
}
