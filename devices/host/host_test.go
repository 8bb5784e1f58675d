package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		devicetest.Run(t, func(t *testing.T) devices.Device {
			d := open(t, options(t, mode), "host,size=48MiB")
			if d.Mode() != mode {
				t.Fatalf("mode %s, because %s", d.Mode(), d.Why())
			}
			return d
		})
	})
}

// TestAdopt closes a tier and opens it again with other sizes.
func TestAdopt(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		o := options(t, mode)
		want := devicetest.Bytes(3<<20, 1)
		d := open(t, o, "host,size=16MiB")
		epoch := d.Epoch()
		write(t, d, 7, want)
		mem, err := d.Alloc(t.Context(), devices.MiB)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for _, size := range []devices.Size{32, 8} {
			d = open(t, o, fmt.Sprintf("host,size=%dMiB", size))
			holds(t, d, 7, want)
			if u, err := d.Usage(); err != nil || u.Total != size*devices.MiB || u.Used < 3*devices.MiB || u.Used > 4*devices.MiB {
				t.Errorf("%+v, %v", u, err)
			}
			if d.Epoch() != epoch || d.Mode() != mode {
				t.Errorf("epoch %d, was %d; mode %s, because %s", d.Epoch(), epoch, d.Mode(), d.Why())
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := openErr(o, "host,size=2MiB"); err == nil || !strings.Contains(err.Error(), "is less than") {
			t.Errorf("a size below what is used: %v", err)
		}
		d = open(t, o, "host")
		holds(t, d, 7, want)
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
		destroyed(t, o, d)
	})
}

// destroyed destroys a tier that has file 7, and opens a new one, which must have nothing
// of it.
func destroyed(t *testing.T, o Options, d *Device) {
	t.Helper()
	if err := d.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Destroy: %v", d.Path(), err)
	}
	fresh := open(t, o, "host,size=16MiB")
	if fresh.Epoch() == d.Epoch() {
		t.Error("a fresh tier has the epoch of the old one")
	}
	if _, err := fresh.Files().Open(7, false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the old tier: %v", err)
	}
}

func TestInUse(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		o := options(t, mode)
		d := open(t, o, "host,size=8MiB")
		if _, err := openErr(o, "host,size=8MiB"); !errors.Is(err, errInUse) {
			t.Errorf("opened twice: %v", err)
		}
		left, err := Leftover(o)
		if err != nil || len(left) != 1 || !left[0].InUse || left[0].Mode != mode {
			t.Errorf("leftover %+v, %v", left, err)
		}
		if err := left[0].Remove(); !errors.Is(err, errInUse) {
			t.Errorf("remove a tier in use: %v", err)
		}
		// A failed second Open must not have harmed the first.
		write(t, d, 1, []byte("alive"))
		holds(t, d, 1, []byte("alive"))
	})
}

// TestKilled opens a tier in another process, which is killed.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		o := options(t, mode)
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$", "-test.v")
		cmd.Env = append(os.Environ(), "HOST_TEST_DIR="+o.Dir, "HOST_TEST_MODE="+string(mode))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err = cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := false
		for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
			ready = lines.Text() == "ready"
		}
		if err = cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if !ready {
			t.Fatal("the helper did not open the tier")
		}
		left, err := Leftover(o)
		if err != nil || len(left) != 1 || left[0].InUse {
			t.Errorf("leftover %+v, %v", left, err)
		}
		d := open(t, o, "host,size=16MiB")
		holds(t, d, 42, devicetest.Bytes(5<<20, 42))
		// The allocation ended with the process.
		if u, err := d.Usage(); err != nil || u.Used != 5*devices.MiB {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// TestHelper is the process that TestKilled kills.
func TestHelper(t *testing.T) {
	dir := os.Getenv("HOST_TEST_DIR")
	if dir == "" {
		t.Skip("a part of TestKilled")
	}
	mode := Mode(os.Getenv("HOST_TEST_MODE"))
	d, err := openErr(Options{Dir: dir, NoMount: mode == ModeQuota}, "host,size=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(t.Context(), 4*devices.MiB); err != nil {
		t.Fatal(err)
	}
	write(t, d, 42, devicetest.Bytes(5<<20, 42))
	fmt.Fprintln(os.Stdout, "\nready")
	select {}
}

// TestNoPrivilege makes mounting fail.
func TestNoPrivilege(t *testing.T) {
	needsSharedMemory(t)
	o := options(t, ModeQuota)
	o.NoMount = false
	driver := NewDriver(o)
	driver.mount = func(string, string, string, uintptr, string) error { return unix.EPERM }
	dev, err := devices.NewRegistry(driver).Open(t.Context(), "host,size=8MiB")
	if err != nil {
		t.Fatal(err)
	}
	d, ok := dev.(*Device)
	if !ok {
		t.Fatalf("the host is a %T", dev)
	}
	if d.Mode() != ModeQuota || !strings.Contains(d.Why(), "no CAP_SYS_ADMIN") {
		t.Errorf("%s, because %q", d.Mode(), d.Why())
	}
	write(t, d, 3, []byte("kept"))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// With the privilege restored, the files are still found.
	again := open(t, o, "host,size=8MiB")
	holds(t, again, 3, []byte("kept"))
	if again.Mode() != ModeQuota || !strings.Contains(again.Why(), "adopted") {
		t.Errorf("%s, because %q", again.Mode(), again.Why())
	}
}

func TestForeignMountIsRefused(t *testing.T) {
	mounted(t)
	o := Options{Dir: t.TempDir()}
	dir := filepath.Join(o.Dir, "host")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("somebody", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := openErr(o, "host,size=8MiB"); err == nil || !strings.Contains(err.Error(), "somebody (tmpfs)") {
		t.Errorf("%v", err)
	}
}

// TestForeignDirectoryIsRefused places something else at each of the quota's directories.
func TestForeignDirectoryIsRefused(t *testing.T) {
	o := options(t, ModeQuota)
	path, err := NewDriver(o).quotaDir(filepath.Join(o.Dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range ownNames {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s-%d", path, i)
		}
		if err = os.Symlink(t.TempDir(), name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(name) })
	}
	_, err = openErr(o, "host,size=8MiB")
	if err == nil || !strings.Contains(err.Error(), "created "+path) {
		t.Errorf("%v", err)
	}
}

func TestBadSpecs(t *testing.T) {
	o := options(t, ModeQuota)
	for spec, says := range map[string]string{
		"host:1,size=1MiB": "there is only one host",
		"host,sise=1MiB":   `no parameter "sise"`,
		"host,size=1PB":    "unknown unit",
		"host,size=900TiB": "900.0 TiB requested, the machine has ",
		"host,mlock=maybe": "not true or false",
	} {
		if _, err := openErr(o, spec); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", spec, err, says)
		}
	}
	if _, err := openErr(Options{}, "host"); err == nil {
		t.Error("opened without a runtime directory")
	}
}

// TestSquattedNames: if other users have created the directory of a tier first, the tier
// gets another name, by which it is found again; if they have created all names, the advice
// in the error helps.
func TestSquattedNames(t *testing.T) {
	needsSharedMemory(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make directories of other users")
	}
	shm, err := os.MkdirTemp("/dev/shm", "hmcfs-squat-") //nolint:usetesting // it must be on a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if failure := os.RemoveAll(shm); failure != nil {
			t.Error(failure)
		}
	})
	o := Options{Dir: t.TempDir(), ID: "squatted", NoMount: true, SharedMemory: shm}
	first, err := NewDriver(o).quotaDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	foreign := func(path string) {
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
	}
	foreign(first)
	d := open(t, o, "host,size=8MiB")
	write(t, d, 3, []byte("kept"))
	if err := errors.Join(d.Close(), os.Remove(first)); err != nil {
		t.Fatal(err)
	}
	d = open(t, o, "host,size=8MiB") // although the first name is free now
	holds(t, d, 3, []byte("kept"))
	if err := d.Destroy(); err != nil {
		t.Fatal(err)
	}
	foreign(first)
	for i := 1; i < ownNames; i++ {
		foreign(fmt.Sprintf("%s-%d", first, i))
	}
	if _, err := openErr(o, "host,size=8MiB"); err == nil || !strings.Contains(err.Error(), "give another --runtime-dir") {
		t.Errorf("all names are others': %v", err)
	}
	o.ID = "another"
	if err := open(t, o, "host,size=8MiB").Destroy(); err != nil {
		t.Errorf("another runtime directory: %v", err)
	}
}
