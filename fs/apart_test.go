package fs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// ownMountEnv passes the mount point to the child process of TestKilledInItsOwnMount.
const ownMountEnv = "HMCFS_TEST_OWN_MOUNT"

// silentFS never answers a lookup, and reports the first one.
type silentFS struct{ fuse.RawFileSystem }

func (silentFS) Lookup(<-chan struct{}, *fuse.InHeader, string, *fuse.EntryOut) fuse.Status {
	_, _ = os.Stdout.WriteString("asked\n") // the parent sees whether the request arrived
	select {}
}

// TestKilledInItsOwnMount kills a process that waits for its own answer: it exits, and so does
// the mount.
func TestKilledInItsOwnMount(t *testing.T) {
	if dir := os.Getenv(ownMountEnv); dir != "" {
		askItself(t, dir)
	}
	kit.Require(t, "root", "fuse")
	kit.Check(t)
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), ownMountEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "asked\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if err = cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it was killed
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	// MNT_FORCE ends requests that will never be answered.
	if err = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	<-ended
}

// askItself mounts, and looks up a name without ever answering the lookup.
func askItself(t *testing.T, dir string) {
	s, err := fuse.NewServer(silentFS{fuse.NewDefaultRawFileSystem()}, dir, &fuse.MountOptions{DirectMountStrict: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	err = apart(func() error { return unix.Stat(filepath.Join(dir, "x"), new(unix.Stat_t)) })
	t.Fatalf("it was answered: %v", err)
}
