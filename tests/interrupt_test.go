package tests

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// slowMount mounts devices on which a copy of slowSize takes many seconds.
func slowMount(t *testing.T) *mnt.M {
	t.Helper()
	return mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=512MiB", "sim:0,size=512MiB,bandwidth=20MB/s,copybandwidth=20MB/s", "sim:1,size=512MiB,bandwidth=20MB/s",
	}})
}

const (
	slowSize = 256 << 20
	// stopsWithin is a limit that only a hang exceeds: that a program stops soon is shown by
	// how little it moves after the signal.
	stopsWithin = time.Minute
	// piece is the maximum that the daemon moves after a signal: the amount that it moves
	// between two checks for cancellation.
	piece = 16 << 20
)

// bytesMoved returns the number of bytes that the daemon has moved between memories since its
// start. Pending transfers are not counted.
func bytesMoved(m *mnt.M) uint64 {
	var n uint64
	for _, p := range m.Stats().Transfers.Paths {
		if p.Path != "fill" {
			n += p.Bytes
		}
	}
	return n
}

// interrupted starts a program, sends it SIGINT when the first piece has been moved, and
// checks that it ends soon and that at most one more piece is moved. The target's size is no
// indication: the kernel does not update it during a copy_file_range.
func interrupted(t *testing.T, m *mnt.M, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	before := bytesMoved(m)
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	kit.Eventually(t, mntPatience, func() bool { return bytesMoved(m) > before })
	sent := time.Now()
	must(t, cmd.Process.Signal(os.Interrupt))
	atSignal := bytesMoved(m)
	timer := time.NewTimer(stopsWithin)
	defer timer.Stop()
	select {
	case err := <-done:
		if err == nil {
			t.Errorf("%q went well in spite of the signal", cmd.Args)
		}
		t.Logf("ended %v after the signal: %v", time.Since(sent), err)
	case <-timer.C:
		t.Errorf("%q did not end within %v of the signal", cmd.Args, stopsWithin)
		_ = cmd.Process.Kill() // it has ended by now
		if err := <-done; err == nil {
			t.Error("it was not killed either")
		}
	}
	if after := bytesMoved(m) - atSignal; after > piece {
		t.Errorf("%q moved %d bytes after the signal, want %d at most", cmd.Args, after, piece)
	}
}

// fillHost creates a large file in the host tier, which is not slow.
func fillHost(t *testing.T, m *mnt.M) string {
	t.Helper()
	name := m.Path("host", "big")
	must(t, withFile(name, os.O_WRONLY|os.O_CREATE, func(f *os.File) error {
		for off := int64(0); off < slowSize; off += 1 << 20 {
			if _, err := f.WriteAt(kit.Bytes(1, off, 1<<20), off); err != nil {
				return err
			}
		}
		return nil
	}))
	return name
}

func TestInterruptedCopyStops(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	m := slowMount(t)
	from := fillHost(t, m)
	for name, cmd := range map[string]func(to string) *exec.Cmd{
		"cp": func(to string) *exec.Cmd { return exec.Command("cp", from, to) },
		"dd": func(to string) *exec.Cmd { return exec.Command("dd", "bs=4M", "if="+from, "of="+to) },
	} {
		to := m.Path("sim0", name)
		interrupted(t, m, cmd(to))
		wantPrefix(t, to)
		must(t, os.Remove(to))
	}
	wantAllFree(t, m, "sim0")
	wantContentInPieces(t, from, slowSize)
}

// wantPrefix checks that a file is a prefix of the big one: as many bytes as its size, each of
// them right.
func wantPrefix(t *testing.T, name string) {
	t.Helper()
	st, err := os.Stat(name)
	must(t, err)
	if st.Size() >= slowSize {
		t.Errorf("%s has all of its %d bytes", name, st.Size())
	}
	wantContentInPieces(t, name, st.Size())
}

func wantContentInPieces(t *testing.T, name string, size int64) {
	t.Helper()
	f := open(t, name, os.O_RDONLY)
	for off := int64(0); off < size; off += 1 << 20 {
		wantRange(t, f, 1, off, int(min(1<<20, size-off)))
	}
	if st := fstat(t, f); st.Size != size {
		t.Errorf("%s has %d bytes, want %d", name, st.Size, size)
	}
	must(t, f.Close())
}

func TestInterruptedDeviceCopyStops(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=64MiB", "sim:0,size=512MiB,copybandwidth=10MB/s", "sim:1,size=512MiB,bandwidth=20MB/s",
	}})
	from := m.Path("sim0", "big")
	must(t, withFile(from, os.O_WRONLY|os.O_CREATE, func(f *os.File) error {
		_, err := f.Write(kit.Bytes(1, 0, 64<<20))
		return err
	}))
	for _, device := range []string{"sim0", "sim1"} {
		to := m.Path(device, "copy")
		interrupted(t, m, exec.Command("cp", from, to))
		wantPrefix(t, to)
		must(t, os.Remove(to))
	}
	must(t, os.Remove(from))
	wantAllFree(t, m, "sim0")
	wantAllFree(t, m, "sim1")
}

func TestInterruptedHmcfsCpRemovesWhatItMade(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	m := slowMount(t)
	from, to := fillHost(t, m), m.Path("sim0", "new")
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	interrupted(t, m, exec.Command(program, "cp", from, to))
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half target of an interrupted copy is there: %v", err)
	}
	wantAllFree(t, m, "sim0")
}

func TestReaderThatIsKilledLeavesTheDaemonWell(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB,latency=20ms"}})
	name := m.Path("sim0", "a")
	create(t, name, 1, 32<<20)
	held := m.Status().Memory
	for range 5 {
		cmd := exec.Command("cat", name)
		must(t, cmd.Start())
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	}
	wantContent(t, name, 1, 32<<20)
	const spare = 8
	wantHeld(t, m, held.Goroutines+spare, held.Files+spare)
}

func TestWithoutPrivilegeItWorksWithoutPassthrough(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fuse", "root", "tool:unshare")
	// Root of its own user namespace may mount FUSE, and do nothing else that needs privilege
	// outside.
	if err := exec.Command("unshare", "-Urm", "true").Run(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	dir := mnt.TempDir(t)
	for _, d := range []string{"mnt", "state", "run"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	const script = `set -e
cd "$1"
"$2" mount --state-dir "$1/state" --runtime-dir "$1/run" --device host,size=16MiB --device sim:0,size=16MiB "$1/mnt"
head -c 3000000 /dev/urandom >in
cp in mnt/host/a; cp mnt/host/a mnt/sim0/b; cp mnt/sim0/b out
cmp in out
cmp in mnt/host/a
"$2" status --json mnt
"$2" umount mnt
`
	cmd := exec.Command("unshare", "-Urm", "sh", "-c", script, "sh", dir, program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "state", "hmcfs.log"))
		t.Fatalf("%v: %s\n%s", err, out, log)
	}
	if !bytes.Contains(out, []byte(`"on": false`)) || !bytes.Contains(out, []byte(`"reason": "`)) {
		t.Errorf("the status does not tell that passthrough is off, and why:\n%s", out)
	}
}
