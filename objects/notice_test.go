package objects_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// heard collects notices.
type heard struct {
	mu   sync.Mutex
	inos []objects.Ino
	dirs []objects.Ino
}

func (h *heard) note(n objects.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.Ino != 0 {
		h.inos = append(h.inos, n.Ino)
	}
	if n.Dir != 0 {
		h.dirs = append(h.dirs, n.Dir)
	}
}

// take returns what was heard since the last time.
func (h *heard) take() (inos, dirs []objects.Ino) {
	h.mu.Lock()
	defer h.mu.Unlock()
	inos, dirs = h.inos, h.dirs
	h.inos, h.dirs = nil, nil
	return inos, dirs
}

func TestEveryChangeIsNoticed(t *testing.T) {
	r := newRig(t, small(true))
	ctx, s := t.Context(), r.store
	root := r.root("sim0")
	var h heard
	cancel := s.OnNotice(h.note)
	var file, folder objects.Attr
	var open *objects.File
	size := uint64(3)
	for _, step := range []struct {
		name string
		run  func() error
		inos func() []objects.Ino
		dirs func() []objects.Ino
	}{
		{
			"create", func() (err error) { file, err = s.Create(ctx, root, "a", metadata.Node{Mode: 0o644}); return err },
			func() []objects.Ino { return []objects.Ino{root, file.Ino} }, func() []objects.Ino { return []objects.Ino{root} },
		},
		{
			"mkdir", func() (err error) {
				folder, err = s.Create(ctx, root, "d", metadata.Node{Mode: metadata.TypeDir | 0o755})
				return err
			},
			func() []objects.Ino { return []objects.Ino{root} }, func() []objects.Ino { return []objects.Ino{root} },
		},
		{
			"write", func() (err error) {
				if open, err = s.OpenFile(ctx, file.Ino); err == nil {
					_, err = open.WriteAt(ctx, []byte("hello"), objects.Write{})
				}
				return err
			},
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"allocate", func() error { return open.Allocate(ctx, objects.AllocateExtend, 0, 100) },
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"cut", func() error { _, err := s.SetAttr(ctx, file.Ino, objects.Change{Size: &size}); return err },
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"attribute", func() error { return s.SetXattr(ctx, file.Ino, "user.a", []byte("1"), 0) },
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"link", func() error { _, err := s.Link(ctx, file.Ino, folder.Ino, "b"); return err },
			func() []objects.Ino { return []objects.Ino{file.Ino, folder.Ino} }, func() []objects.Ino { return []objects.Ino{folder.Ino} },
		},
		{
			"rename", func() error {
				return s.Rename(ctx, metadata.Rename{From: root, Name: "a", To: folder.Ino, NewName: "c"})
			},
			func() []objects.Ino { return []objects.Ino{root, folder.Ino} },
			func() []objects.Ino { return []objects.Ino{root, folder.Ino} },
		},
		{
			"unlink", func() error { return s.Unlink(ctx, folder.Ino, "b") },
			func() []objects.Ino { return []objects.Ino{file.Ino, folder.Ino} }, func() []objects.Ino { return []objects.Ino{folder.Ino} },
		},
		{
			"remove", func() error { return s.Unlink(ctx, folder.Ino, "c") },
			func() []objects.Ino { return []objects.Ino{file.Ino, folder.Ino} }, func() []objects.Ino { return []objects.Ino{folder.Ino} },
		},
		{
			"orphan", func() error {
				_, err := s.SetAttr(ctx, file.Ino, objects.Change{UID: new(uint32(7))})
				return err
			},
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"by the kernel", func() error { open.KernelWrites(); return open.Close(ctx) },
			func() []objects.Ino { return []objects.Ino{file.Ino} }, nil,
		},
		{
			"rmdir", func() error { return s.Rmdir(ctx, root, "d") },
			func() []objects.Ino { return []objects.Ino{root} }, func() []objects.Ino { return []objects.Ino{root} },
		},
	} {
		h.take()
		if err := step.run(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		inos, dirs := h.take()
		for _, want := range step.inos() {
			if !slices.Contains(inos, want) {
				t.Errorf("%s: inode %d was not noticed, but %v", step.name, want, inos)
			}
		}
		if step.dirs == nil {
			continue
		}
		for _, want := range step.dirs() {
			if !slices.Contains(dirs, want) {
				t.Errorf("%s: names of %d were not noticed, but of %v", step.name, want, dirs)
			}
		}
	}
	cancel()
	if _, err := s.Create(ctx, root, "after", metadata.Node{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if inos, dirs := h.take(); len(inos)+len(dirs) > 0 {
		t.Errorf("after the end %v and %v were noticed", inos, dirs)
	}
}
