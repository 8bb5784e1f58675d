package tests

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestFilesOfReadOnlyMount tries all changes by a session of a mount that permits none: there the
// kernel refuses them, and here the daemon does.
func TestFilesOfReadOnlyMount(t *testing.T) {
	kit.Check(t)
	options := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(options, nil, 0o600))
	m := mnt.Mount(t, mnt.Options{Extra: []string{"--config", options}})
	must(t, os.WriteFile(m.Path("host", "kept"), kit.Bytes(5, 0, 5000), 0o600))
	must(t, os.WriteFile(options, []byte("option: [ro]\n"), 0o600))
	m.Remount()
	s, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	defer func() { must(t, s.Close()) }()
	f := s.Files()
	for name, change := range map[string]func() error{
		"create": func() error { return f.WriteFile("host/new", []byte("x"), 0o600) },
		"mkdir":  func() error { return f.Mkdir("host/d", 0o700) },
		"link":   func() error { return f.Symlink("x", "host/l") },
		"remove": func() error { return f.Remove("host") },
		"rename": func() error { return f.Rename("host", "sim0/x") },
		"chmod":  func() error { return f.Chmod("host", 0o700) },
		"xattr":  func() error { return f.SetAttribute("host", "user.a", []byte("b")) },
		"none":   func() error { return f.RemoveAttribute("host", "user.a") },
	} {
		if err := change(); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.ReadDir("host"); err != nil {
		t.Error(err)
	}
	keysOfReadOnlyMount(t, m, s)
}

// keysOfReadOnlyMount tries all changes of keys, and to bind memory, which pass by the kernel, too.
func keysOfReadOnlyMount(t *testing.T, m *mnt.M, s *client.Session) {
	t.Helper()
	ctx, key, memory := t.Context(), []string{"k"}, registerMemory(t, s, 4096)
	list := memory.list(4096)
	for name, change := range map[string]func() error{
		"publish":           func() error { _, err := s.DevPublish(ctx, key, list); return err },
		"mset":              func() error { _, err := s.DevMSet(ctx, key, list); return err },
		"mget of a replica": func() error { _, err := s.DevMGet(ctx, key, list, hetero.GetOptions{Replica: true}); return err },
		"d2h":               func() error { _, err := s.MSetD2H(ctx, key, list, hetero.SetOptions{}); return err },
		"d2h in the background": func() error {
			_, err := s.AsyncMSetD2H(ctx, key, list, hetero.SetOptions{})
			return err
		},
		"delete":       func() error { _, err := s.DevDelete(ctx, key); return err },
		"local delete": func() error { _, err := s.DevLocalDelete(ctx, key); return err },
		"expire":       func() error { _, err := s.Expire(ctx, key, time.Minute); return err },
	} {
		if err := change(); !errors.Is(err, hetero.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir, err := os.Open(m.Path("host"))
	must(t, err)
	defer func() { must(t, dir.Close()) }()
	said := &client.Error{}
	if _, err = m.Client().Bind(ctx, dir, share.Memory{Family: "host"}); !errors.As(err, &said) || said.Code != "read_only" {
		t.Errorf("bind: %v", err)
	}
	wantNoMemory(t, m, s)
	found, err := s.Exist(ctx, key)
	if err != nil || found[0] {
		t.Errorf("exist: %v, %v", found, err)
	}
	if _, err = s.DevMGet(ctx, key, list, hetero.GetOptions{}); !errors.Is(err, hetero.ErrNotFound) {
		t.Errorf("mget: %v", err)
	}
}

// wantNoMemory tries to get at the memory of a file, to which its owner could write: host/kept, which
// the mount before this one has left.
func wantNoMemory(t *testing.T, m *mnt.M, s *client.Session) {
	t.Helper()
	f, fault := os.Open(m.Path("host", "kept"))
	must(t, fault)
	defer func() { must(t, f.Close()) }()
	for name, get := range map[string]func() error{
		"export":   func() error { _, err := m.Client().Export(t.Context(), f, ""); return err },
		"handle":   func() error { _, err := m.Client().Handle(t.Context(), f, "", 0); return err },
		"register": func() error { _, err := s.PreRegister(t.Context(), hetero.Memory{File: f}); return err },
		"target":   func() error { _, err := s.PreRegister(t.Context(), hetero.Memory{Target: f}); return err },
	} {
		said := &client.Error{}
		if err := get(); !errors.Is(err, hetero.ErrReadOnly) && (!errors.As(err, &said) || said.Code != "read_only") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, fault = unix.Fgetxattr(int(f.Fd()), "user.hmc.handle", make([]byte, 4096))
	wantErrno(t, fault, unix.EROFS)
	if got, err := os.ReadFile(f.Name()); err != nil || len(got) == 0 || kit.DiffAt(got, 5, 0) >= 0 {
		t.Errorf("read: %d bytes, %v", len(got), err)
	}
}

// TestFilesOfOthersInSharedFolder puts a link and a file of another user into a folder in which
// everybody may create names. A session follows no such link, and takes no such file for its own.
func TestFilesOfOthersInSharedFolder(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "root")
	m := mnt.Mount(t, mnt.Options{})
	must(t, os.Mkdir(m.Path("host", "shared"), 0o700))
	must(t, os.Chmod(m.Path("host", "shared"), 0o777|fs.ModeSticky))
	must(t, os.WriteFile(m.Path("host", "mine"), kit.Bytes(2, 0, 5000), 0o600))
	must(t, os.Symlink("../mine", m.Path("host", "shared", "link")))
	must(t, os.WriteFile(m.Path("host", "shared", "file"), nil, 0o600))
	for _, name := range []string{"link", "file"} {
		must(t, os.Lchown(m.Path("host", "shared", name), 65534, 65534))
	}
	s, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	defer func() { must(t, s.Close()) }()
	f := s.Files()
	for _, name := range []string{"link", "file"} {
		if err := f.WriteFile("host/shared/"+name, []byte("secret"), 0o600); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := f.ReadFile("host/mine"); err != nil || kit.DiffAt(got, 2, 0) >= 0 {
		t.Errorf("what the link leads to: %d bytes, %v", len(got), err)
	}
}
