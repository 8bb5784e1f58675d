package tests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const (
	// silentName and askerName are the names of two programs for the tests.
	silentName = "hmcfs-test-silent"
	askerName  = "hmcfs-test-asker"
	// silentLife is the lifetime of a file system that does not answer, whatever happens to
	// the test.
	silentLife = 4 * time.Minute
	// silentNode is its only file.
	silentNode = 2
)

// silentFS has one file, f, which can be opened, but no further request for it is answered.
type silentFS struct {
	fuse.RawFileSystem
	never chan struct{}
}

func (s *silentFS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if name != "f" {
		return fuse.ENOENT
	}
	out.NodeId = silentNode
	out.SetEntryTimeout(time.Hour)
	out.Attr = fuse.Attr{Ino: silentNode, Mode: unix.S_IFREG | 0o666, Size: 4096, Nlink: 1, Owner: fuse.Owner{Uid: alice, Gid: alice}}
	return fuse.OK
}

func (s *silentFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == silentNode {
		<-s.never
	}
	out.Attr = fuse.Attr{Ino: in.NodeId, Mode: unix.S_IFDIR | 0o755, Nlink: 2}
	return fuse.OK
}

func (s *silentFS) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return fuse.OK
}

func (s *silentFS) StatFs(_ <-chan struct{}, in *fuse.InHeader, _ *fuse.StatfsOut) fuse.Status {
	if in.NodeId == silentNode {
		<-s.never
	}
	return fuse.OK
}

func (s *silentFS) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status {
	<-s.never
	return fuse.OK
}

// serveSilent is the program of silentName: it serves the file system at its argument until
// its input ends, or its lifetime. The end of the process closes the file system's connection
// even if requests are pending, since it opens none of its own files and starts no process.
func serveSilent() {
	time.AfterFunc(silentLife, func() { os.Exit(1) })
	fs := &silentFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), never: make(chan struct{})}
	server, err := fuse.NewServer(fs, os.Args[1], &fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, Name: "silent", FsName: "silent",
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go server.Serve()
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // the input ends with the test
	os.Exit(0)
}

// ask is the program of askerName: it opens the file of the file system that does not answer,
// passes it to the daemon by the method of its first argument, and prints the outcome. It ends
// when the file system does.
func ask() {
	way, socket, silent, into := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	// Package os would request the file's attributes.
	fd, err := unix.Open(silent, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = give(way, socket, os.NewFile(uintptr(fd), silent), into)
	}
	if err == nil {
		err = errors.New(taken)
	}
	fmt.Fprintln(os.Stdout, strings.ReplaceAll(err.Error(), "\n", " "))
}

// taken is the output of ask if the daemon has accepted the file.
const taken = "it was taken"

func give(way, socket string, silent *os.File, into string) error {
	ctx, c := context.Background(), client.New(socket)
	memory := oneMemfd("sim", os.Getpid(), 4096)
	switch way {
	case "bind":
		file, err := os.OpenFile(into, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		_, err = c.Bind(ctx, file, memory, silent)
		// This process exits only when the file system ends; until then an open file would
		// keep the mount busy.
		return errors.Join(err, file.Close())
	case "export":
		_, err := c.Export(ctx, silent, "")
		return err
	case "register":
		s, err := client.OpenSession(ctx, socket)
		if err == nil {
			_, err = s.PreRegister(ctx, hetero.Memory{Device: "sim0", Share: &memory, Files: []*os.File{silent}})
		}
		return err
	case "file":
		s, err := client.OpenSession(ctx, socket)
		if err == nil {
			_, err = s.PreRegister(ctx, hetero.Memory{File: silent})
		}
		return err
	case "path":
		return unix.Setxattr(into, bindXattr, []byte(bindValue("sim", 0, pathPiece(silent.Name(), 4096))), 0)
	}
	return unix.Setxattr(into, bindXattr, []byte(bindValue("sim", os.Getpid(), fdPiece(silent))), 0)
}

// startSilent mounts the file system that does not answer. It ends with the test, or when end
// is called.
func startSilent(t *testing.T) (file string, end func()) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	cmd := mnt.Itself(silentName, dir)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Kill() // which ends the requests that wait for it
		_ = stdin.Close()
		// So does this, if the process still exists.
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
		_ = cmd.Wait() // it was killed
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the file system says %q: %v", line, err)
	}
	return filepath.Join(dir, "f"), end
}

// TestSilentFileSystem lets a user pass files of a file system that does not answer to the
// daemon, by every method: each is refused, other users are not affected, and the unmount
// ends. The file system belongs to root, since one of the user's own refuses the daemon's
// requests with EACCES without asking its server, except for closing.
func TestSilentFileSystem(t *testing.T) {
	if !kit.Exhaustive() {
		t.Skip("each wait takes half a minute")
	}
	for _, flags := range [][]string{nil, {"--force"}} {
		t.Run(fmt.Sprint("umount", flags), func(t *testing.T) {
			kit.Check(t)
			kit.Require(t, "fuse", "root")
			givesSilentFiles(t, flags)
		})
	}
}

func givesSilentFiles(t *testing.T, flags []string) {
	t.Helper()
	var askers []*exec.Cmd
	t.Cleanup(func() {
		for _, cmd := range askers {
			_ = cmd.Wait() // its output was read
		}
	})
	silent, end := startSilent(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	dir := openDir(t, m.Path("sim0"))
	said := map[string]chan string{}
	for _, way := range []string{"bind", "export", "register", "file", "path", "take"} {
		into := filepath.Join(dir, way)
		must(t, os.WriteFile(into, nil, 0o666))
		must(t, os.Chown(into, alice, alice))
		cmd := mnt.Itself(askerName, way, socketOf(m), silent, into)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: userAlice().Credential()}
		cmd.Dir, cmd.Stderr = "/", os.Stderr
		r, w, err := os.Pipe()
		must(t, err)
		t.Cleanup(func() { must(t, r.Close()) })
		cmd.Stdout = w
		must(t, errors.Join(cmd.Start(), w.Close()))
		askers = append(askers, cmd)
		answer := make(chan string, 1)
		said[way] = answer
		go func() {
			line, _ := bufio.NewReader(r).ReadString('\n') // an empty line is a failure
			answer <- line
		}()
	}
	othersGoOn(t, m, dir, 1)
	start := time.Now()
	for way, answer := range said {
		select {
		case line := <-answer:
			t.Logf("%s: after %v: %s", way, time.Since(start).Round(time.Second), strings.TrimSpace(line))
			if line == "" || strings.HasPrefix(line, taken) {
				t.Errorf("%s: %q", way, line)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: the daemon has not answered", way)
		}
	}
	othersGoOn(t, m, dir, 2)
	pid := m.PID()
	guards, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	var children []string
	for _, name := range guards {
		text, err := os.ReadFile(name)
		must(t, err)
		children = append(children, strings.Fields(string(text))...)
	}
	t.Logf("the daemon's processes: %q", children)
	if code, words := startProgram(t, "hmcfs", append(append([]string{"umount"}, flags...), m.Dir)...).ends(t); code != 0 {
		t.Errorf("umount: code %d, %s", code, words)
	}
	waitForEnd(t, pid)
	end()
	kit.Eventually(t, mntPatience, func() error {
		for _, child := range children {
			if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil && strings.Contains(string(line), "guard-descriptors") {
				return fmt.Errorf("process %s is there", child)
			}
		}
		return nil
	})
}

// othersGoOn lets another user, and root, run operations that need the daemon and its guard.
func othersGoOn(t *testing.T, m *mnt.M, dir string, seed uint64) {
	t.Helper()
	for who, u := range map[string]mnt.User{"bob": userBob(), "root": {}} {
		mnt.AsUser(t, u, func() {
			f := filepath.Join(dir, fmt.Sprint(who, seed))
			if err := os.WriteFile(f, kit.Bytes(seed, 0, 10_000), 0o600); err != nil {
				t.Errorf("%s: %v", who, err)
				return
			}
			mapped, err := client.Map(t.Context(), f)
			if err != nil {
				t.Errorf("%s: %v", who, err)
				return
			}
			if i := kit.DiffAt(mapped.Bytes[:10_000], seed, 0); i >= 0 {
				t.Errorf("%s: byte %d is wrong", who, i)
			}
			if err = mapped.Close(); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		})
	}
	if _, err := m.Run("status", m.Dir); err != nil {
		t.Error(err)
	}
}
