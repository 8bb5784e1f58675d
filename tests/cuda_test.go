package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

const cardFile = 5<<20 + 4097

// A mount that is told of no devices has the cards that the driver shows.
func TestCUDACardsAreMountedByThemselves(t *testing.T) {
	kit.Check(t)
	c := newCards(t)
	out, err := c.hmcfs("mount", "--state-dir", c.StateDir, "--runtime-dir", c.RuntimeDir, c.Dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"host", "cuda0", "cuda1"} {
		f := c.Path(name, "f")
		create(t, f, 1, cardFile)
		wantContent(t, f, 1, cardFile)
	}
	_, err = c.Run("umount", c.Dir)
	must(t, err)
}

// families are what hmcfs devices says.
func (c *cards) families() map[string]string {
	c.t.Helper()
	out, err := c.hmcfs("devices", "--json").Output()
	must(c.t, err)
	var all []struct {
		Family, Reason string
		Devices        []struct{ Name string }
	}
	must(c.t, json.Unmarshal(out, &all))
	said := make(map[string]string)
	for _, f := range all {
		said[f.Family] = f.Reason
		for _, d := range f.Devices {
			said[f.Family] += d.Name + " "
		}
	}
	return said
}

// A driver without a card is no failure, and says why there is none.
func TestCUDADriverWithoutCard(t *testing.T) {
	kit.Check(t)
	c := newCards(t)
	if got := c.families()["cuda"]; got != "cuda0 cuda1 " {
		t.Errorf("with two cards: %q", got)
	}
	c.set("devices=0")
	if got := c.families()["cuda"]; !strings.Contains(got, "CUDA_ERROR_NO_DEVICE") && !strings.Contains(got, "no card") {
		t.Errorf("without a card: %q", got)
	}
	out, err := c.hmcfs("mount", "--state-dir", c.StateDir, "--runtime-dir", c.RuntimeDir, c.Dir).CombinedOutput()
	if err != nil {
		t.Fatalf("mount without a card: %v\n%s", err, out)
	}
	_, err = os.Stat(c.Path("cuda0"))
	wantErrno(t, err, unix.ENOENT)
	create(t, c.Path("host", "f"), 1, cardFile)
	wantContent(t, c.Path("host", "f"), 1, cardFile)
	_, err = c.Run("umount", c.Dir)
	must(t, err)
	out, err = c.hmcfs("mount", "--state-dir", c.StateDir, "--runtime-dir", c.RuntimeDir, "--device", "cuda:0", c.Dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cuda:0") {
		t.Errorf("mount of a card that is not there: %v\n%s", err, out)
	}
}

// Copies from card to card go by the peers' own way where there is one, and
// are told to be staged where there is none.
func TestCUDACopyBetweenCards(t *testing.T) {
	for name, c := range map[string]struct{ setting, path string }{
		"peers": {"peer=1", "d2d-peer"}, "no peers": {"peer=0", "staged"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			m := mountCards(t, c.setting)
			from, to, moved := m.Path("cuda0", "f"), m.Path("cuda1", "f"), m.Path("cuda0", "moved")
			create(t, from, 1, cardFile)
			must(t, exec.Command("cp", from, to).Run())
			wantContent(t, to, 1, cardFile)
			wantXattr(t, to, "user.hmc.path", c.path)
			must(t, os.Rename(to, moved))
			wantContent(t, moved, 1, cardFile)
			wantXattr(t, moved, "user.hmc.path", c.path)
		})
	}
}

// A card whose context is dead takes only its own files along.
func TestCUDACardFails(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	broken, whole, host := m.Path("cuda0", "f"), m.Path("cuda1", "f"), m.Path("host", "f")
	for _, f := range []string{broken, whole, host} {
		create(t, f, 1, cardFile)
	}
	m.set("fail=cuMemcpyDtoHAsync_v2:0:700:0") // CUDA_ERROR_ILLEGAL_ADDRESS, sticky
	_, err := os.ReadFile(broken)
	wantErrno(t, err, unix.EIO)
	m.set()
	_, err = os.ReadFile(broken)
	wantErrno(t, err, unix.EIO)
	wantErrno(t, writeAt(broken, []byte("x"), 0), unix.EIO)
	wantErrno(t, os.WriteFile(m.Path("cuda0", "new"), []byte("x"), 0o600), unix.EIO)
	wantXattr(t, broken, "user.hmc.state", "lost")
	wantContent(t, whole, 1, cardFile)
	wantContent(t, host, 1, cardFile)
	create(t, m.Path("cuda1", "new"), 2, cardFile)
	wantContent(t, m.Path("cuda1", "new"), 2, cardFile)
	if !strings.Contains(m.Log(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("the log does not name the error:\n%s", m.Log())
	}
	must(t, os.Remove(broken))
	// The next process has a context of its own.
	m.Remount()
	create(t, m.Path("cuda0", "again"), 3, cardFile)
	wantContent(t, m.Path("cuda0", "again"), 3, cardFile)
}

func writeAt(path string, p []byte, off int64) error {
	return withFile(path, os.O_RDWR, func(f *os.File) error {
		_, err := f.WriteAt(p, off)
		return err
	})
}

// A card that other programs have filled is full, and says so; what was
// written stays.
func TestCUDACardIsFull(t *testing.T) {
	kit.Check(t)
	const memory = 96 << 20
	m := mountCards(t, "memory=100663296")
	kept, f := m.Path("cuda0", "kept"), m.Path("cuda0", "f")
	create(t, kept, 1, cardFile)
	m.set("memory=100663296", "taken=0:83886080")
	err := os.WriteFile(f, kit.Bytes(2, 0, memory/2), 0o600)
	wantErrno(t, err, unix.ENOSPC)
	wantContent(t, kept, 1, cardFile)
	st := lstat(t, f)
	wantContent(t, f, 2, int(st.Size))
	if !strings.Contains(m.Log(), "cuda0: out of memory: ") || !strings.Contains(m.Log(), " asked, ") {
		t.Errorf("the log does not say what was asked and what is free:\n%s", m.Log())
	}
	create(t, m.Path("cuda1", "f"), 3, memory/2)
	m.set("memory=100663296")
	create(t, f, 4, memory/2)
	wantContent(t, f, 4, memory/2)
	wantContent(t, kept, 1, cardFile)
}

// What is bound is one card's, and no other's.
func TestCUDABindOfOtherCard(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	for _, kind := range []string{"ipc", "vmm-fd"} {
		owner, value := own(t, m, kind, cardFile, 1, 1)
		wrong, right := m.Path("cuda0", kind), m.Path("cuda1", kind)
		must(t, os.WriteFile(wrong, nil, 0o600))
		wantErrno(t, unix.Setxattr(wrong, bindXattr, []byte(value), 0), unix.EINVAL)
		bindFile(t, right, value)
		wantContent(t, right, 1, cardFile)
		owner.agrees("verify 1")
		must(t, os.Remove(right))
	}
}

// Bound memory outlives the daemon, and is bound again as long as its owner
// lives.
func TestCUDABindOutlivesDaemon(t *testing.T) {
	for _, kind := range []string{"ipc", "vmm-fd"} {
		t.Run(kind, func(t *testing.T) {
			kit.Check(t)
			m := mountCards(t)
			lives, value := own(t, m, kind, cardFile, 1, 0)
			dies, other := own(t, m, kind, cardFile, 2, 0)
			f, g := m.Path("cuda0", "f"), m.Path("cuda0", "g")
			bindFile(t, f, value)
			bindFile(t, g, other)
			m.Kill()
			lives.agrees("fill 3")
			dies.kill()
			must(t, unix.Unmount(m.Dir, unix.MNT_DETACH))
			m.Start()
			wantContent(t, f, 3, cardFile)
			must(t, withFile(f, os.O_RDWR, func(h *os.File) error {
				_, err := h.WriteAt(kit.Bytes(4, 0, cardFile), 0)
				return err
			}))
			lives.agrees("verify 4")
			lives.agrees("guards")
			_, err := os.ReadFile(g)
			wantErrno(t, err, unix.EIO)
			wantXattr(t, g, "user.hmc.state", "lost")
		})
	}
}

// Who has opened an exported descriptor keeps the memory when the daemon is
// killed; nobody else gets it.
func TestCUDAExportOutlivesDaemon(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	f := m.Path("cuda0", "f")
	create(t, f, 1, cardFile)
	handle, err := m.Run("export", "--json", "--kind", "vmm-fd", f)
	must(t, err)
	opener := newTruth(t, m, "open")
	_, err = opener.in.Write([]byte(strings.ReplaceAll(handle, "\n", " ") + "\n"))
	must(t, err)
	if got := opener.hear(); !strings.HasPrefix(got, "open ") {
		t.Fatalf("truth: %s", got)
	}
	opener.agrees("verify 1")
	m.Kill()
	opener.agrees("verify 1")
	opener.agrees("fill 2")
	opener.agrees("verify 2")
	must(t, unix.Unmount(m.Dir, unix.MNT_DETACH))
	m.Start()
	_, err = os.ReadFile(f)
	wantErrno(t, err, unix.EIO)
	wantXattr(t, f, "user.hmc.state", "lost")
	create(t, m.Path("cuda0", "new"), 5, cardFile)
	opener.agrees("verify 2")
	wantContent(t, m.Path("cuda0", "new"), 5, cardFile)
}

// Two mounts have one card between them.
func TestCUDATwoDaemons(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	second := m.again()
	here, there := m.Path("cuda0", "f"), second.Path("cuda0", "f")
	create(t, here, 1, cardFile)
	create(t, there, 2, cardFile)
	// What one exports the other binds: the daemon is an owner like others.
	value, err := getxattr(here, handleXattr)
	must(t, err)
	bindFile(t, second.Path("cuda0", "bound"), value)
	wantContent(t, second.Path("cuda0", "bound"), 1, cardFile)
	second.Kill()
	wantContent(t, here, 1, cardFile)
	must(t, unix.Unmount(second.Dir, unix.MNT_DETACH))
	second.Start()
	kit.Eventually(t, time.Minute, func() error {
		_, err := os.Stat(filepath.Join(second.Dir, "cuda0", "bound"))
		return err
	})
	wantContent(t, second.Path("cuda0", "bound"), 1, cardFile)
	wantContent(t, here, 1, cardFile)
}
