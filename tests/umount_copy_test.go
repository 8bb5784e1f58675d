package tests

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestUmountWithACopy unmounts while another mount namespace has a copy of the mount, like a
// container that was started meanwhile: the error names the process that has it.
func TestUmountWithACopy(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fuse", "root", "tool:unshare")
	m := mnt.Mount(t, mnt.Options{})
	other := exec.Command("unshare", "--mount", "--propagation", "private", "sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	must(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()         // killed
	})
	kit.Eventually(t, time.Minute, func() bool {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", other.Process.Pid))
		return err == nil && strings.TrimSpace(string(comm)) == "sleep"
	})
	code, words := startProgram(t, "hmcfs", "umount", m.Dir).ends(t)
	want := fmt.Sprintf("sleep (%d) has %s mounted in its own mount namespace; that copy of the mount has been cut off", other.Process.Pid, m.Dir)
	if code != 0 || !strings.Contains(words, want) {
		t.Errorf("code %d, %q; want 0 and %q", code, words, want)
	}
	if log := m.Log(); !strings.Contains(log, "another mount namespace has a copy") {
		t.Errorf("the log does not say why the connection was cut: %s", log)
	}
}
