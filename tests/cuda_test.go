package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// standInCards is a stand-in for libcuda.so.1, which the library path of every program that
// the test starts finds first.
type standInCards struct{ control string }

// useStandInCards compiles the library; settings are those of standin.h.
func useStandInCards(t *testing.T, settings ...string) standInCards {
	t.Helper()
	dir := standin.Library(t, "cuda", "libcuda.so.1")
	t.Setenv("LD_LIBRARY_PATH", dir)
	c := standInCards{control: filepath.Join(dir, "control")}
	c.set(t, settings...)
	return c
}

// set replaces the settings, even those of a running daemon.
func (c standInCards) set(t *testing.T, settings ...string) {
	t.Helper()
	must(t, os.WriteFile(c.control+".new", []byte(strings.Join(settings, "\n")+"\n"), 0o644))
	must(t, os.Rename(c.control+".new", c.control))
}

// cardSize is the memory size of a card, in bytes.
const cardSize = devices.Size(128 << 20)

// TestCUDACardsShowUp mounts without naming any device, and uses the cards as people do.
func TestCUDACardsShowUp(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, fmt.Sprintf("memory=%d", cardSize))
	m := mnt.Mount(t, mnt.Options{Found: true})
	entries, err := os.ReadDir(m.Dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, want := range []string{"host", "cuda0", "cuda1"} {
		if !slices.Contains(names, want) {
			t.Fatalf("the mount has %q", names)
		}
	}
	const total = cardSize / 10 * 9
	const unit = 2 * devices.MiB // of memory that outlives the daemon
	for i, facts := range []string{"Stand-in GPU 0", "Stand-in GPU 1"} {
		d := m.Device(fmt.Sprintf("cuda%d", i))
		if d.Model != facts || d.Total > total || d.Total <= total-unit {
			t.Errorf("device %+v of %d bytes", d, uint64(d.Total))
		}
	}
	out, err := m.Run("devices")
	must(t, err)
	for _, want := range []string{"cuda:0", "cuda:1", "0000:ab:00.0"} {
		if !strings.Contains(out, want) {
			t.Errorf("hmcfs devices:\n%s", out)
		}
	}
	moveBetweenCards(t, m)
	// The stand-in fails a daemon that does not release all resources of a card.
	m.Umount()
}

// moveBetweenCards copies a file in, within the card, across and out, and moves it.
func moveBetweenCards(t *testing.T, m *mnt.M) {
	t.Helper()
	const size = 20<<20 + 4321
	source := filepath.Join(t.TempDir(), "source")
	must(t, os.WriteFile(source, kit.Bytes(1, 0, size), 0o644))
	a, b, c := m.Path("cuda0", "a"), m.Path("cuda0", "b"), m.Path("cuda1", "c")
	paths := func(step, want string, args ...string) {
		t.Helper()
		before := m.Stats().Bytes(want)
		run(t, args[0], args[1:]...)
		if moved := m.Stats().Bytes(want) - before; moved != size {
			t.Errorf("%s: %d of %d bytes by %s", step, moved, size, want)
		}
	}
	paths("cp in", "h2d", "cp", source, a)
	paths("cp inside", "d2d", "cp", a, b)
	paths("cp across", "d2d-peer", "cp", a, c)
	if how, err := getXattr(c, "user.hmc.path"); err != nil || how != "d2d-peer" {
		t.Errorf("user.hmc.path is %q, %v", how, err)
	}
	for _, name := range []string{a, b, c} {
		run(t, "cmp", source, name)
	}
	moved := m.Path("cuda1", "moved")
	paths("mv across", "d2d-peer", "mv", b, moved)
	run(t, "cmp", source, moved)
	if _, err := os.Stat(b); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that was moved: %v", err)
	}
	run(t, "cp", moved, m.Path("host", "d"))
	run(t, "cmp", source, m.Path("host", "d"))
	for _, name := range []string{a, c, moved, m.Path("host", "d")} {
		must(t, os.Remove(name))
	}
}

// TestCUDACardFails lets one card fail while mounted: its files return EIO, and everything
// else works.
func TestCUDACardFails(t *testing.T) {
	kit.Check(t)
	cards := useStandInCards(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "cuda:0,size=64MiB", "cuda:1,size=64MiB"}})
	const size = 3 << 20
	for i, d := range []string{"cuda0", "cuda1", "host"} {
		must(t, os.WriteFile(m.Path(d, "a"), kit.Bytes(uint64(i), 0, size), 0o644))
	}
	cards.set(t, "fail=cuMemcpyDtoHAsync_v2:0:700:0")
	for i := range 6 {
		if _, err := os.ReadFile(m.Path("cuda0", "a")); !errors.Is(err, unix.EIO) {
			t.Fatalf("read from a card that fails: %v", err)
		}
		if i == 2 {
			// Read-ahead that was running when the card failed has ended: from here on another
			// call to the card ends the daemon.
			cards.set(t, "silent=1", "fail=cuMemcpyDtoHAsync_v2:0:700:0")
		}
	}
	if err := os.WriteFile(m.Path("cuda0", "new"), kit.Bytes(9, 0, size), 0o644); !errors.Is(err, unix.EIO) {
		t.Errorf("write to a card that has failed: %v", err)
	}
	if state, err := getXattr(m.Path("cuda0", "a"), "user.hmc.state"); err != nil || state != "lost" {
		t.Errorf("user.hmc.state is %q, %v", state, err)
	}
	for i, d := range []string{"cuda1", "host"} {
		got, err := os.ReadFile(m.Path(d, "a"))
		must(t, err)
		if at := kit.DiffAt(got, uint64(i+1), 0); at >= 0 || len(got) != size {
			t.Errorf("%s: byte %d of %d differs", d, at, len(got))
		}
		must(t, os.WriteFile(m.Path(d, "b"), kit.Bytes(7, 0, size), 0o644))
	}
	run(t, "df", m.Path("cuda0"), m.Path("cuda1"))
	if free := m.Device("cuda0").Free; free != 0 {
		t.Errorf("a card that has failed has %v free", free)
	}
	must(t, os.Remove(m.Path("cuda0", "a")))
	for _, want := range []string{"device has failed", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "cuda0"} {
		if !strings.Contains(m.Log(), want) {
			t.Errorf("the log lacks %q:\n%s", want, m.Log())
		}
	}
}

// TestCUDACardIsFull fills a card of which others have allocated a part.
func TestCUDACardIsFull(t *testing.T) {
	kit.Check(t)
	cards := useStandInCards(t, "memory=134217728", "taken=0:100663296")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "cuda:0"}})
	err := os.WriteFile(m.Path("cuda0", "a"), kit.Bytes(1, 0, 40<<20), 0o644)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("write of more than the card has: %v", err)
	}
	got, err := os.ReadFile(m.Path("cuda0", "a"))
	must(t, err)
	if at := kit.DiffAt(got, 1, 0); at >= 0 || len(got) == 0 {
		t.Errorf("byte %d of %d differs", at, len(got))
	}
	if !strings.Contains(m.Log(), "cuda0: out of memory:") || !strings.Contains(m.Log(), "asked") {
		t.Errorf("the log does not name the card:\n%s", m.Log())
	}
	must(t, os.Remove(m.Path("cuda0", "a")))
	cards.set(t)
	kit.Eventually(t, 30*time.Second, func() error {
		return os.WriteFile(m.Path("cuda0", "a"), kit.Bytes(2, 0, 40<<20), 0o644)
	})
}

// TestCUDACardOfTwoDaemons mounts one card twice: memory that one mount allocates is not
// available to the other, and neither touches the other's bytes.
func TestCUDACardOfTwoDaemons(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, fmt.Sprintf("memory=%d", cardSize))
	var mounts [2]*mnt.M
	for i := range mounts {
		mounts[i] = mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "cuda:0"}})
	}
	const each = 40 << 20
	for i, m := range mounts {
		must(t, os.WriteFile(m.Path("cuda0", "a"), kit.Bytes(uint64(i), 0, each), 0o644))
	}
	for i, m := range mounts {
		if free := m.Device("cuda0").Free; free > cardSize-2*each {
			t.Errorf("mount %d says that %v of %v are free", i, free, cardSize)
		}
		if err := os.WriteFile(m.Path("cuda0", "b"), kit.Bytes(9, 0, 70<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("mount %d takes what the other has: %v", i, err)
		}
		must(t, os.Remove(m.Path("cuda0", "b")))
	}
	for i, m := range mounts {
		got, err := os.ReadFile(m.Path("cuda0", "a"))
		must(t, err)
		if at := kit.DiffAt(got, uint64(i), 0); at >= 0 || len(got) != each {
			t.Errorf("mount %d: byte %d of %d differs", i, at, len(got))
		}
	}
	// When one ends, the other gets its memory.
	mounts[0].Kill()
	must(t, os.WriteFile(mounts[1].Path("cuda0", "b"), kit.Bytes(3, 0, 60<<20), 0o644))
}

// TestCUDAWithoutCards mounts where the driver's library exists but finds no card.
func TestCUDAWithoutCards(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, "devices=0")
	m := mnt.Mount(t, mnt.Options{Found: true})
	if _, err := os.Stat(m.Path("cuda0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cuda0: %v", err)
	}
	if !strings.Contains(m.Log(), "CUDA_ERROR_NO_DEVICE (100)") {
		t.Errorf("the log gives no reason:\n%s", m.Log())
	}
	must(t, os.WriteFile(m.Path("host", "a"), kit.Bytes(1, 0, 1000), 0o644))
	out, err := m.Run("devices")
	must(t, err)
	if !strings.Contains(out, "CUDA_ERROR_NO_DEVICE (100)") {
		t.Errorf("hmcfs devices:\n%s", out)
	}
}
