package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// attempt is an operation that a rule about names permits or forbids.
type attempt struct {
	name string
	// do gets the directory of a device that contains a file f and a directory d.
	do func(dev string) error
	// allowed is true if no rule forbids it.
	allowed bool
}

// rulesOfKeyed returns attempts on the directories of keyed objects.
func rulesOfKeyed() []attempt {
	in := filepath.Join
	return []attempt{
		{name: "mkdir .keys", do: func(dev string) error { return os.Mkdir(in(dev, ".keys"), 0o777) }},
		{name: "create .keys", do: func(dev string) error { return os.WriteFile(in(dev, ".keys"), nil, 0o666) }},
		{name: "symlink .keys", do: func(dev string) error { return os.Symlink("d", in(dev, ".keys")) }},
		{name: "mkfifo .keys", do: func(dev string) error { return unix.Mkfifo(in(dev, ".keys"), 0o666) }},
		{name: "link .keys", do: func(dev string) error { return os.Link(in(dev, "f"), in(dev, ".keys")) }},
		{name: "rename to .keys", do: func(dev string) error { return os.Rename(in(dev, "f"), in(dev, ".keys")) }},
		{name: "rename a directory to .keys", do: func(dev string) error { return os.Rename(in(dev, "d"), in(dev, ".keys")) }},
		{name: "mkdir d/.keys", do: func(dev string) error { return os.Mkdir(in(dev, "d", ".keys"), 0o777) }, allowed: true},
		{name: "rename d/.keys", do: func(dev string) error { return os.Rename(in(dev, "d", ".keys"), in(dev, "d", "x")) }, allowed: true},
	}
}

// rulesInKeyed returns attempts inside such a directory, which contains k.
func rulesInKeyed() []attempt {
	keys := func(dev string, name ...string) string {
		return filepath.Join(append([]string{dev, ".keys"}, name...)...)
	}
	return []attempt{
		{name: "create in", do: func(dev string) error { return os.WriteFile(keys(dev, "x"), nil, 0o666) }},
		{name: "mkdir in", do: func(dev string) error { return os.Mkdir(keys(dev, "x"), 0o777) }},
		{name: "symlink in", do: func(dev string) error { return os.Symlink("k", keys(dev, "x")) }},
		{name: "link in", do: func(dev string) error { return os.Link(filepath.Join(dev, "f"), keys(dev, "x")) }},
		{name: "rename in", do: func(dev string) error { return os.Rename(filepath.Join(dev, "f"), keys(dev, "x")) }},
		{name: "rename inside", do: func(dev string) error { return os.Rename(keys(dev, "k"), keys(dev, "x")) }},
		{name: "rename over", do: func(dev string) error { return os.Rename(filepath.Join(dev, "f"), keys(dev, "k")) }},
		{name: "rename .keys", do: func(dev string) error { return os.Rename(keys(dev), filepath.Join(dev, "x")) }},
		{name: "exchange", do: func(dev string) error {
			return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dev, "f"), unix.AT_FDCWD, keys(dev, "k"), unix.RENAME_EXCHANGE)
		}},
		{name: "exchange .keys", do: func(dev string) error {
			return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dev, "d"), unix.AT_FDCWD, keys(dev), unix.RENAME_EXCHANGE)
		}},
		{name: "rename out", do: func(dev string) error { return os.Rename(keys(dev, "k"), filepath.Join(dev, "out")) }, allowed: true},
	}
}

// TestRulesOfNames lets a user try what the rules about hmcfs's own names forbid, on the mount
// itself and through another node: only hmcfs creates the directory of keyed objects, and
// names in it.
func TestRulesOfNames(t *testing.T) {
	kit.Check(t)
	specs, names := devicesOf(t)
	_, nodes := newNodes(t, worldOptions{machines: 2, devices: specs})
	a, b := nodes[0], nodes[1]
	bob := mnt.User{UID: 1001, GID: 1001}
	for _, device := range names {
		own := b.Path(device)
		for way, dev := range map[string]string{"mount": own, "node": a.at("b", device)} {
			t.Run(device+"/"+way, func(t *testing.T) {
				mnt.AsUser(t, bob, func() {
					attemptAll(t, dev, rulesOfKeyed())
				})
				if _, err := os.Lstat(filepath.Join(own, ".keys")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("after that .keys is there: %v", err)
				}
			})
		}
	}
	own := b.Path("host")
	for way, dev := range map[string]string{"mount": own, "node": a.at("b", "host")} {
		t.Run("inside/"+way, func(t *testing.T) {
			source := filepath.Join(own, "source")
			must(t, errors.Join(os.WriteFile(source, kit.Bytes(1, 0, 1000), 0o600), os.Chown(source, bob.UID, bob.GID)))
			cmd := b.Command("d2h", "k="+source)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: bob.Credential()}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			mnt.AsUser(t, bob, func() { attemptAll(t, dev, rulesInKeyed()) })
		})
	}
}

// TestEndOfOthersFiles lets a user set the expiry of files that the user may write: through
// another node as on the mount itself, that requires the same rights as removing them.
func TestEndOfOthersFiles(t *testing.T) {
	specs, _ := devicesOf(t)
	_, nodes := newNodes(t, worldOptions{machines: 2, devices: specs})
	a, b := nodes[0], nodes[1]
	for _, c := range []struct {
		name string
		mode os.FileMode
		want error
	}{{"closed", 0o755, unix.EPERM}, {"sticky", 0o777 | os.ModeSticky, unix.EPERM}, {"open", 0o777, nil}} {
		dir := b.Path("host", c.name)
		must(t, os.Mkdir(dir, 0o755))
		f := filepath.Join(dir, "f")
		must(t, errors.Join(os.Chmod(dir, c.mode), os.WriteFile(f, kit.Bytes(1, 0, 100), 0o600), os.Chmod(f, 0o666)))
		for way, f := range map[string]string{"mount": f, "node": a.at("b", "host", c.name, "f")} {
			mnt.AsUser(t, mnt.User{UID: 1001, GID: 1001}, func() {
				if err := unix.Setxattr(f, "user.hmc.ttl", []byte("1000"), 0); !errors.Is(err, c.want) {
					t.Errorf("%s, by the %s: %v, want %v", c.name, way, err, c.want)
				}
			})
		}
	}
}

// attemptAll makes attempts, each with its own file and directory. It runs as a user, so it
// must not end the test.
func attemptAll(t *testing.T, dev string, all []attempt) {
	t.Helper()
	for _, at := range all {
		f, d := filepath.Join(dev, "f"), filepath.Join(dev, "d")
		if err := errors.Join(os.WriteFile(f, []byte("mine"), 0o666), os.MkdirAll(d, 0o777)); err != nil {
			t.Errorf("%s: before: %v", at.name, err)
			continue
		}
		err := at.do(dev)
		switch {
		case at.allowed && err != nil:
			t.Errorf("%s: %v", at.name, err)
		case !at.allowed && !errors.Is(err, unix.EPERM):
			t.Errorf("%s: %v, want EPERM", at.name, err)
		}
		// The leftovers of an attempt would change the outcome of the next.
		for _, left := range []string{"f", "x", "out"} {
			if err := os.RemoveAll(filepath.Join(dev, left)); err != nil {
				t.Errorf("%s: clean up: %v", at.name, err)
			}
		}
		if strings.HasPrefix(at.name, "rename d/") {
			if err := os.RemoveAll(d); err != nil {
				t.Errorf("%s: clean up: %v", at.name, err)
			}
		}
	}
}
