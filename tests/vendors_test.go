package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// vendorDevices returns the devices of the stand-ins of all vendors.
func vendorDevices() []string {
	return []string{"hip0", "hip1", "mlu0", "mlu1", "musa0", "musa1", "npu0", "npu1"}
}

// standins puts the stand-ins of all vendors into the library path of every process that the
// test starts, and returns their control file.
func standins(t *testing.T) (control string) {
	t.Helper()
	kit.Require(t, "fuse", "root", "tool:cc")
	var dirs []string
	for source, soname := range map[string]string{
		"hip": "libamdhip64.so.7", "cn": "libcndrv.so", "musa": "libmusart.so.5", "acl": "libascendcl.so",
	} {
		dirs = append(dirs, standin.Library(t, source, soname))
	}
	control = filepath.Join(t.TempDir(), "control")
	t.Setenv("LD_LIBRARY_PATH", strings.Join(append(dirs, os.Getenv("LD_LIBRARY_PATH")), ":"))
	t.Setenv("HMCFS_STANDIN_CONTROL", control)
	return control
}

// TestVendorsAreFound mounts without naming a device: one daemon has the cards of every
// vendor, and bytes can be copied between all of them.
func TestVendorsAreFound(t *testing.T) {
	kit.Check(t)
	standins(t)
	m := mnt.Mount(t, mnt.Options{Found: true})
	for i, name := range vendorDevices() {
		if d := m.Device(name); strings.TrimRight(name, "01") != string(d.Family) || !strings.HasPrefix(d.Model, "Stand-in") {
			t.Errorf("%s is %+v", name, d)
		}
		create(t, m.Path(name, "a"), uint64(i+1), 2<<20+i*777+1)
	}
	if out, err := m.Run("devices"); err != nil || !strings.Contains(out, "musa:1") || !strings.Contains(out, "0000:c1:00.0") {
		t.Errorf("%v\n%s", err, out)
	}
	for i, from := range vendorDevices() {
		n := 2<<20 + i*777 + 1
		wantContent(t, m.Path(from, "a"), uint64(i+1), n)
		for _, to := range append(vendorDevices(), "host") {
			target := m.Path(to, "from-"+from)
			if _, err := m.Run("cp", m.Path(from, "a"), target); err != nil {
				t.Fatal(err)
			}
			wantContent(t, target, uint64(i+1), n)
			if to != "host" {
				wantXattr(t, target, "user.hmc.path", wayBetween(from, to))
			}
		}
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(m.Path("npu1"), &st))
	if total := st.Blocks * uint64(st.Bsize); total>>20 != 230 { // nine tenths of 256 MiB
		t.Errorf("npu1 has %d bytes", total)
	}
}

// wayBetween returns the path that bytes take between two cards: only cards of one vendor have
// peer access.
func wayBetween(from, to string) string {
	switch {
	case from == to:
		return "d2d"
	case strings.TrimRight(from, "01") == strings.TrimRight(to, "01"):
		return "d2d-peer"
	}
	return "staged"
}

// settings replaces the stand-ins' settings atomically, since a daemon reads them
// concurrently.
func settings(t *testing.T, control, text string) {
	t.Helper()
	must(t, os.WriteFile(control+".new", []byte(text), 0o600))
	must(t, os.Rename(control+".new", control))
}

// TestVendorsCardFails lets one card of a mount fail permanently, and another run full: the
// files of the first are lost, everything else works.
func TestVendorsCardFails(t *testing.T) {
	kit.Check(t)
	control := standins(t)
	m := mnt.Mount(t, mnt.Options{Found: true})
	names := vendorDevices()
	for i, name := range names {
		create(t, m.Path(name, "a"), uint64(i+1), 1<<20)
	}
	settings(t, control, "fail=hipStreamSynchronize:0:700:0\nfail=aclrtMalloc:0:207001:1\n")
	_, err := os.ReadFile(m.Path("hip0", "a"))
	wantErrno(t, err, unix.EIO)
	wantErrno(t, os.WriteFile(m.Path("npu1", "b"), kit.Bytes(1, 0, 64<<20), 0o644), unix.ENOSPC)
	settings(t, control, "")

	_, err = os.ReadFile(m.Path("hip0", "a"))
	wantErrno(t, err, unix.EIO)
	wantXattr(t, m.Path("hip0", "a"), "user.hmc.state", "lost")
	if err := os.WriteFile(m.Path("hip0", "b"), kit.Bytes(1, 0, 4096), 0o644); err == nil {
		t.Error("a failed card takes a file")
	}
	for i, name := range names[1:] {
		wantContent(t, m.Path(name, "a"), uint64(i+2), 1<<20)
		create(t, m.Path(name, "c"), 99, 1<<20)
		wantContent(t, m.Path(name, "c"), 99, 1<<20)
	}
	must(t, os.Remove(m.Path("hip0", "a")))
}

// familyOfDevices is a part of the output of hmcfs devices --json.
type familyOfDevices struct {
	Family  string
	Devices []struct{ Name string }
	Reason  string
}

// TestRealHIPWithoutCard mounts with AMD's own library and no card: the family reports why it
// has no device, and the daemon's output contains only lines of hmcfs itself.
func TestRealHIPWithoutCard(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "hip")
	if _, err := os.Stat("/dev/kfd"); err == nil {
		t.Skip("there may be a card")
	}
	m := mnt.Mount(t, mnt.Options{Found: true})
	out, err := m.Run("devices", "--json")
	must(t, err)
	var rows []familyOfDevices
	must(t, json.Unmarshal([]byte(out), &rows))
	i := slices.IndexFunc(rows, func(r familyOfDevices) bool { return r.Family == "hip" })
	const want = " finds no AMD or Hygon device: hipGetDeviceCount: hipErrorNoDevice (100); is the amdgpu driver loaded"
	if i < 0 || len(rows[i].Devices) != 0 || !strings.Contains(rows[i].Reason, want) {
		t.Errorf("devices: %s", out)
	}
	for _, d := range m.Status().Devices {
		if d.Family == "hip" {
			t.Errorf("mounted %s", d.Name)
		}
	}
	for line := range strings.Lines(m.Log()) {
		ours := strings.Count(line, "\t") >= 3 || strings.HasPrefix(line, "hmcfs: ") || line == "\n"
		if !ours {
			t.Errorf("the daemon's output has %q", line)
		}
	}
}
