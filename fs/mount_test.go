package fs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
)

func TestCheckMountPoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	empty := filepath.Join(dir, "empty")
	must(t, os.Mkdir(empty, 0o700))
	for name, c := range map[string]struct{ path, says string }{
		"missing": {filepath.Join(dir, "no"), "no such file"},
		"a file":  {file, "not a directory"},
	} {
		_, err := checkMountPoint(c.path)
		if !errors.Is(err, ErrMountPoint) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(empty, link))
	for _, path := range []string{empty, link} {
		if got, err := checkMountPoint(path); err != nil || got != empty {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}

func TestMountFlags(t *testing.T) {
	for _, c := range []struct {
		options []string
		flags   uintptr
		rest    []string
	}{
		{nil, unix.MS_NOSUID | unix.MS_NODEV, nil},
		{[]string{"ro", "noexec"}, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_RDONLY | unix.MS_NOEXEC, nil},
		{[]string{"suid", "dev"}, unix.MS_MGC_VAL, nil},
		{[]string{"defaults", "noatime", "blksize=4096"}, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME, []string{"blksize=4096"}},
		{[]string{"ro", "rw"}, unix.MS_NOSUID | unix.MS_NODEV, nil},
	} {
		flags, rest := mountFlags(c.options)
		if flags != c.flags || !slices.Equal(rest, c.rest) {
			t.Errorf("%v: %#x %v, want %#x %v", c.options, flags, rest, c.flags, c.rest)
		}
	}
}

func TestMountErrors(t *testing.T) {
	o := &Options{MountOptions: []string{"ro", "typo"}}
	for errno, says := range map[syscall.Errno]string{
		syscall.EPERM: "CAP_SYS_ADMIN", syscall.EINVAL: "ro,typo", syscall.ENODEV: "modprobe",
	} {
		if err := mountError("/mnt", o, errno); !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

func TestMountRefusesBadOptions(t *testing.T) {
	_, err := Mount(context.Background(), Options{
		Passthrough: "perhaps", MaxWrite: 5000, MaxBackground: -1,
		ReadAhead: 2 * devices.GiB, MountOptions: []string{"a,b"},
	})
	if err == nil {
		t.Fatal("mounted")
	}
	for _, fault := range []string{"object store", "engine", "mount point", "perhaps", "5000", "-1", "2.0 GiB", "a,b"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q is not named in:\n%v", fault, err)
		}
	}
}

func TestOptionsDefaults(t *testing.T) {
	o := Options{Store: &objects.Store{}, Engine: &transport.Engine{}, MountPoint: "/mnt"}
	o.EnsureDefaults()
	must(t, o.Validate())
	if o.ReadAhead != DefaultReadAhead || o.MaxWrite != DefaultMaxWrite || o.CacheTimeout != DefaultCacheTimeout {
		t.Errorf("defaults: %v", o.String())
	}
	o.NoReadAhead = true
	o.EnsureDefaults()
	if o.ReadAhead != 0 {
		t.Errorf("read-ahead of %v, want none", o.ReadAhead)
	}
}

func TestOperationNames(t *testing.T) {
	seen := map[string]bool{}
	for o := range operations {
		name := o.String()
		if name == "" || seen[name] {
			t.Errorf("operation %d is called %q", o, name)
		}
		seen[name] = true
	}
}

func TestCounters(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	f.writeAt(pattern(1000, 1), 0)
	f.readAt(600, 0)
	r.lookup(r.root("sim0"), "missing")
	f.release()
	f.release() // a bad handle
	rows := map[string]OperationStats{}
	for _, row := range r.ops.rows() {
		rows[row.Name] = row
	}
	if rows["write"].Bytes != 1000 || rows["read"].Bytes != 600 || rows["create"].Count != 1 {
		t.Errorf("counters: %+v", rows)
	}
	if rows["lookup"].Errors != 0 || rows["release"].Errors != 1 {
		t.Errorf("lookup failed %d times, release %d", rows["lookup"].Errors, rows["release"].Errors)
	}
	if _, ok := rows["rename"]; ok {
		t.Error("a kind that was not seen has a row")
	}
}
