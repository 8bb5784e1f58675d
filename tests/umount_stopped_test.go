package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// program is one run of a command whose output is kept.
type program struct {
	*exec.Cmd
	words bytes.Buffer
	done  chan struct{}
}

func startProgram(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.Stdout, p.Stderr = &p.words, &p.words
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait() // its exit code is checked by ends
	}()
	return p
}

// ends waits for the command's end and returns its exit code and output.
func (p *program) ends(t *testing.T) (code int, words string) {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode(), p.words.String()
	case <-time.After(60 * time.Second):
		_ = p.Process.Kill()
		t.Fatalf("%v has not ended", p.Args)
		return 0, ""
	}
}

// TestUmountOfStoppedDaemon stops a daemon, so that it does not answer: a plain unmount
// reports that, and --force lets the kernel remove the mount.
func TestUmountOfStoppedDaemon(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	writeSome(t, m.Path("sim0"))
	open, err := os.Open(m.Path("sim0", "sub", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	pid := m.PID()
	goOn := kit.Stop(t, m.PID())
	defer goOn()

	code, words := startProgram(t, "hmcfs", "umount", m.Dir).ends(t)
	want := fmt.Sprintf("process %d, is stopped and does not answer; resume it: kill -CONT %d; or remove the mount without it: hmcfs umount --force %s", pid, pid, m.Dir)
	if code != 1 || !strings.Contains(words, want) {
		t.Errorf("plain unmount: code %d, %q; want 1 and %q", code, words, want)
	}
	if left := mnt.MountedBelow(m.Dir); len(left) != 1 {
		t.Errorf("after it %q is mounted", left)
	}

	waits := startProgram(t, "cat", m.Path("host", "not-looked-up-yet"))
	code, words = startProgram(t, "hmcfs", "umount", "--force", m.Dir).ends(t)
	for _, want := range []string{"the kernel has removed the mount", "files that are still open report errors", fmt.Sprintf("process %d still holds its memory", pid)} {
		if code != 0 || !strings.Contains(words, want) {
			t.Errorf("unmount by force: code %d, %q; want 0 and %q", code, words, want)
		}
	}
	if left := mnt.MountedBelow(m.Dir); len(left) > 0 {
		t.Errorf("after it %q is mounted", left)
	}
	if code, words = waits.ends(t); code == 0 {
		t.Errorf("who waited for the mount got %q, not an error", words)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a file that was open can still be read")
	}
	code, words = startProgram(t, "hmcfs", "umount", m.Dir).ends(t)
	if code != 3 || !strings.Contains(words, fmt.Sprintf("process %d, which served it, has not exited", pid)) {
		t.Errorf("unmount of what is gone: code %d, %q", code, words)
	}
	goOn()
	waitForEnd(t, pid)
}

// TestSignalEndsVerbs stops the daemon, and then ends the commands that wait for it by a
// signal.
func TestSignalEndsVerbs(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	writeSome(t, m.Path("sim0"))
	defer kit.Stop(t, m.PID())()
	for _, args := range [][]string{
		{"umount", m.Dir},
		{"umount", "--force", m.Dir},
		{"stat", m.Path("sim0", "sub", "never-seen")},
		{"cp", m.Path("sim0", "sub", "never-seen-either"), t.TempDir()},
	} {
		p := startProgram(t, "hmcfs", args...)
		// It waits for the daemon, after it has set up its signal handlers.
		kit.Eventually(t, time.Minute, func() error { return waitsForOthers(p.Process.Pid) })
		// The kernel wakes the first thread for a signal, and no other thread takes the signal
		// if that one can't.
		if where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.Process.Pid)); err != nil || strings.Contains(string(where), "request_wait") {
			t.Errorf("%v: the first thread waits in %s, %v", args, where, err)
		}
		if err := p.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code, words := p.ends(t); code != 143 {
			t.Errorf("%v: code %d, %q; want 143", args, code, words)
		}
	}
	if left := mnt.MountedBelow(m.Dir); len(left) != 1 {
		t.Errorf("%q is mounted", left)
	}
}

// waitsForOthers returns nil if a process has a connection, or a thread in a request to a file
// system.
func waitsForOthers(pid int) error {
	inRequest := kit.EveryThread(pid, "wchan", func(where string) bool { return !strings.Contains(where, "request_wait") })
	if inRequest != nil {
		return nil
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "socket:") {
			return nil
		}
	}
	return fmt.Errorf("process %d is busy with itself", pid)
}
