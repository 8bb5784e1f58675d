package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const cardFile = 5<<20 + 4097

// mountCards mounts two cards of the stand-in.
func mountCards(t *testing.T, settings ...string) *mnt.M {
	t.Helper()
	useStandInCards(t, settings...)
	return mountCardsAgain(t)
}

// mountCardsAgain mounts the same cards a second time, in another process.
func mountCardsAgain(t *testing.T) *mnt.M {
	t.Helper()
	return mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "cuda:0", "cuda:1"}})
}

// Copies between cards use peer access if available, and are reported as staged otherwise.
func TestCUDACopyBetweenCards(t *testing.T) {
	for name, c := range map[string]struct{ setting, path string }{
		"peers": {"peer=1", "d2d-peer"}, "no peers": {"peer=0", "staged"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			m := mountCards(t, c.setting)
			from, to, moved := m.Path("cuda0", "f"), m.Path("cuda1", "f"), m.Path("cuda0", "moved")
			create(t, from, 1, cardFile)
			run(t, "cp", from, to)
			wantContent(t, to, 1, cardFile)
			wantXattr(t, to, "user.hmc.path", c.path)
			must(t, os.Rename(to, moved))
			wantContent(t, moved, 1, cardFile)
			wantXattr(t, moved, "user.hmc.path", c.path)
		})
	}
}

// Bound memory belongs to one card only.
func TestCUDABindOfOtherCard(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	for _, kind := range []string{"ipc", "vmm-fd"} {
		owner, value := own(t, kind, 1, 1)
		wrong, right := m.Path("cuda0", kind), m.Path("cuda1", kind)
		must(t, os.WriteFile(wrong, nil, 0o600))
		wantErrno(t, unix.Setxattr(wrong, bindXattr, []byte(value), 0), unix.EINVAL)
		bindFile(t, right, value)
		wantContent(t, right, 1, cardFile)
		owner.agrees("verify 1")
		must(t, os.Remove(right))
	}
}

// A part of a card (MIG) has its own UUID, by which both sides name it. An owner that knows
// only the UUID of the whole card is told the right one.
func TestCUDABindPartOfCard(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, "devices=1", "mig=1")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "cuda:0"}})
	for _, kind := range []string{"ipc", "vmm-fd"} {
		owner, value := own(t, kind, 1, 0)
		f := m.Path("cuda0", kind)
		bindFile(t, f, value)
		wantContent(t, f, 1, cardFile)
		owner.agrees("verify 1")
		var handle map[string]any
		must(t, json.Unmarshal([]byte(value), &handle))
		part, _ := handle["device"].(string)
		if !strings.HasPrefix(part, "MIG-") {
			t.Errorf("the owner calls its device %q", part)
		}
		whole := m.Path("cuda0", "whole")
		must(t, os.WriteFile(whole, nil, 0o600))
		_, err := m.Run("bind", whole, "--handle", strings.Replace(value, part, "GPU-c0c3c6c9-cccf-d2d5-d8db-dee1e4e7ea00", 1))
		if err == nil || !strings.Contains(err.Error(), "a part of that card; give the UUID of the part, "+part) {
			t.Errorf("bind by the UUID of the whole card: %v", err)
		}
		must(t, os.Remove(whole))
		must(t, os.Remove(f))
	}
	f := m.Path("cuda0", "exported")
	create(t, f, 2, cardFile)
	opener := opens(t, m, f)
	opener.agrees("verify 2")
}

// Bound memory outlives the daemon, and is bound again as long as its owner lives.
func TestCUDABindOutlivesDaemon(t *testing.T) {
	for _, kind := range []string{"ipc", "vmm-fd"} {
		t.Run(kind, func(t *testing.T) {
			kit.Check(t)
			m := mountCards(t)
			lives, value := own(t, kind, 1, 0)
			dies, other := own(t, kind, 2, 0)
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

// The same holds for memory whose descriptor was passed: the owner's number for it was never
// sent, and its index in the passed list is not that number.
func TestCUDABindByVerbOutlivesDaemon(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	owner, value := own(t, "vmm-fd", 1, 0)
	f := m.Path("cuda0", "f")
	must(t, os.WriteFile(f, nil, 0o600))
	_, err := m.Run("bind", f, "--handle", value)
	must(t, err)
	wantContent(t, f, 1, cardFile)
	m.Kill()
	owner.agrees("fill 3")
	must(t, unix.Unmount(m.Dir, unix.MNT_DETACH))
	m.Start()
	wantXattr(t, f, "user.hmc.state", "bound")
	wantContent(t, f, 3, cardFile)
	owner.agrees("guards")
}

// opens lets another program open the memory that a file exports.
func opens(t *testing.T, m *mnt.M, file string) *truth {
	t.Helper()
	handle, err := m.Run("export", "--json", "--kind", "vmm-fd", file)
	must(t, err)
	opener := newTruth(t, "open")
	_, err = opener.in.Write([]byte(strings.ReplaceAll(handle, "\n", " ") + "\n"))
	must(t, err)
	if got := opener.hear(); !strings.HasPrefix(got, "open ") {
		t.Fatalf("truth: %s", got)
	}
	return opener
}

// A process that has opened an exported descriptor keeps the memory when the daemon is killed;
// no other process gets it.
func TestCUDAExportOutlivesDaemon(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	f := m.Path("cuda0", "f")
	create(t, f, 1, cardFile)
	opener := opens(t, m, f)
	opener.agrees("verify 1")
	m.Kill()
	opener.agrees("verify 1")
	opener.agrees("fill 2")
	opener.agrees("verify 2")
	must(t, unix.Unmount(m.Dir, unix.MNT_DETACH))
	m.Start()
	_, err := os.ReadFile(f)
	wantErrno(t, err, unix.EIO)
	wantXattr(t, f, "user.hmc.state", "lost")
	create(t, m.Path("cuda0", "new"), 5, cardFile)
	opener.agrees("verify 2")
	wantContent(t, m.Path("cuda0", "new"), 5, cardFile)
}

// Two mounts share one card.
func TestCUDATwoDaemons(t *testing.T) {
	kit.Check(t)
	m := mountCards(t)
	second := mountCardsAgain(t)
	here, there := m.Path("cuda0", "f"), second.Path("cuda0", "f")
	create(t, here, 1, cardFile)
	create(t, there, 2, cardFile)
	// One mount binds what the other exports: a daemon is an owner like any other.
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
