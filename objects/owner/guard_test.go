package owner_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// asGuard makes this program the guard's process.
const asGuard = "as-guard"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asGuard {
		if err := owner.ServeGuard(os.NewFile(3, "control")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// guard returns a guard whose process is this program, and a channel that receives its command
// when it is started.
func guard(t testing.TB) (g *owner.Guard, started <-chan *exec.Cmd) {
	t.Helper()
	began := make(chan *exec.Cmd, 8)
	g = owner.NewGuard(func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", asGuard)
		cmd.Stderr = os.Stderr
		began <- cmd
		return cmd
	}, 0)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, began
}

// eachGuard runs a test in this process, and with a guard.
func eachGuard(t *testing.T, fn func(t *testing.T, g *owner.Guard)) {
	t.Helper()
	t.Run("here", func(t *testing.T) { fn(t, nil) })
	t.Run("guard", func(t *testing.T) {
		g, _ := guard(t)
		fn(t, g)
	})
}

// pair returns two connected sockets.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		var ok bool
		if ends[i], ok = c.(*net.UnixConn); !ok {
			t.Fatalf("a %T", c)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// channels returns both ends of a channel.
func channels(t testing.TB) (a, b *frames.Channel) {
	t.Helper()
	a, end, err := frames.NewChannel()
	if err == nil {
		b, err = frames.AdoptChannel(end)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// receive sends files and receives them through a guard.
func receive(t testing.TB, g *owner.Guard, files ...*os.File) ([]*os.File, error) {
	t.Helper()
	a, b := channels(t)
	if err := a.Send(1, files); err != nil {
		t.Fatal(err)
	}
	got, err := b.Receive(1, len(files), g, 7)
	t.Cleanup(func() { adminapi.CloseAll(got) })
	return got, err
}

// Files passed on by a guard are the same, in order; a file whose close would involve its file
// system is only named.
func TestGuardLetsMemoryThrough(t *testing.T) {
	kit.Check(t)
	g, _ := guard(t)
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.OpenFile(disk.Name(), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	sent := []*os.File{memfd(t), disk, null, dir, memfd(t), r, w, name}
	defer adminapi.CloseAll([]*os.File{disk, null, dir, r, w, name})
	got, err := receive(t, g, sent...)
	if err != nil || len(got) != len(sent) {
		t.Fatalf("%d files, %v", len(got), err)
	}
	named := []bool{false, true, false, true, false, true, true, true}
	for i := range sent {
		want, err := owner.Identity(sent[i])
		is, ierr := owner.Identity(got[i])
		if is != want || errors.Join(err, ierr) != nil {
			t.Errorf("%s is %+v, not %+v: %v", sent[i].Name(), is, want, errors.Join(err, ierr))
		}
		flags, err := unix.FcntlInt(got[i].Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_PATH != 0 != named[i] {
			t.Errorf("%s is open as %o: %v", sent[i].Name(), flags, err)
		}
	}
	if s := g.Stats(); s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// slowToClose returns a socket whose last descriptor closes only when the other end does, or
// after a minute: it lingers over unread bytes.
func slowToClose(t testing.TB) (*os.File, func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("a %T", c)
	}
	f, err := tcp.File()
	if err = errors.Join(err, tcp.Close()); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd()) // it is blocking from now on
	err = errors.Join(unix.SetNonblock(fd, true),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
	for block := make([]byte, 1<<20); err == nil; {
		_, err = unix.Write(fd, block)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	end := func() {
		if p, ok := peer.(*net.TCPConn); ok {
			_ = p.SetLinger(0)
		}
		_ = peer.Close()
	}
	t.Cleanup(end)
	return f, end
}

// sendAway sends a descriptor and closes it: the receiver then has the last one.
func sendAway(t testing.TB, g *owner.Guard, f *os.File) error {
	t.Helper()
	a, b := channels(t)
	if err := errors.Join(a.Send(1, []*os.File{f}), unix.SetNonblock(int(f.Fd()), true), f.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := b.Receive(1, 1, g, 7)
	adminapi.CloseAll(got)
	return err
}

// A user whose descriptors don't close has a bounded number of requests that wait for that, and
// is then refused; others are not, and nothing waits at the end.
func TestWhatDoesNotClose(t *testing.T) {
	kit.Check(t)
	g, _ := guard(t)
	const bound = 8
	ends := make([]func(), bound)
	for i := range ends {
		f, end := slowToClose(t)
		ends[i] = end
		if err := sendAway(t, g, f); err != nil {
			t.Fatalf("descriptor %d: %v", i, err)
		}
	}
	if s := g.Stats(); s.Held != bound || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
	g.SetLimit(time.Millisecond)
	if _, err := receive(t, g, memfd(t)); !errors.Is(err, owner.ErrSilent) {
		t.Errorf("one more: %v", err)
	}
	g.SetLimit(patience)
	if s := g.Stats(); s.Refused != 1 {
		t.Errorf("%+v", s)
	}
	pid, _ := kit.Process(t, memfd(t))
	p := find(t, pid)
	f, err := p.Descriptor(g, 3, uint32(os.Getuid()))
	if err == nil {
		err = f.Close()
	}
	if err = errors.Join(err, p.Close()); err != nil {
		t.Errorf("another user: %v", err)
	}
	ends[0]()
	kit.Eventually(t, patience, func() error {
		if s := g.Stats(); s.Held != bound-1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if _, err := receive(t, g, memfd(t)); err != nil {
		t.Errorf("after one has closed: %v", err)
	}
}

// A guard's process that was killed is replaced.
func TestGuardIsKilled(t *testing.T) {
	kit.Check(t)
	g, started := guard(t)
	for range 3 {
		if _, err := receive(t, g, memfd(t)); err != nil {
			t.Fatal(err)
		}
		pid := (<-started).Process.Pid
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, patience, func() error {
			if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("process %d: %w", pid, err)
			}
			return nil
		})
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := receive(t, g, memfd(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a guard that is closed: %v", err)
	}
}

// A guard's process that accepts nothing is replaced: one that is killed while it waits for a
// file system keeps its descriptors open, so that no end is visible.
func TestGuardStandsStill(t *testing.T) {
	kit.Check(t)
	g, started := guard(t)
	if _, err := receive(t, g, memfd(t)); err != nil {
		t.Fatal(err)
	}
	process := (<-started).Process
	if err := process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	// Until its last thread is stopped, it may accept a request.
	kit.Eventually(t, patience, func() error { return standsStill(process.Pid) })
	g.SetLimit(time.Second)
	if _, err := receive(t, g, memfd(t)); !errors.Is(err, owner.ErrSilent) {
		t.Errorf("of a process that stands still: %v", err)
	}
	g.SetLimit(patience)
	if _, err := receive(t, g, memfd(t)); err != nil {
		t.Errorf("the next one: %v", err)
	}
	if s := g.Stats(); s != (owner.GuardStats{}) {
		t.Errorf("%+v", s)
	}
}

// standsStill returns an error while a thread of a process is not stopped.
func standsStill(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("the threads of %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, state, _ := bytes.Cut(text, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			return fmt.Errorf("%s: %.1s", name, state)
		}
	}
	return nil
}

// A process that can't be started is not retried forever.
func TestGuardDoesNotStart(t *testing.T) {
	kit.Check(t)
	tries := 0
	g := owner.NewGuard(func() *exec.Cmd {
		if tries++; tries > 2 {
			t.Error("tried again and again")
			return exec.Command("/bin/false")
		}
		return &exec.Cmd{Path: "/proc/self/exe", Err: unix.EAGAIN}
	}, 0)
	t.Cleanup(func() { _ = g.Close() })
	if _, err := receive(t, g, memfd(t)); !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
}

// A guard's process that has run out of descriptors continues with those it has: a file that
// does not fit causes an error, and is never replaced by another one.
func TestGuardIsFull(t *testing.T) {
	kit.Check(t)
	starts := 0
	g := owner.NewGuard(func() *exec.Cmd {
		starts++
		cmd := exec.Command("/bin/sh", "-c", "ulimit -n 32; exec /proc/$PPID/exe "+asGuard)
		cmd.Stderr = os.Stderr
		return cmd
	}, 0)
	t.Cleanup(func() { _ = g.Close() })
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }()
	if _, err = receive(t, g, disk); err != nil {
		t.Fatal(err)
	}
	for n := 8; n < 40; n += 2 {
		sent := make([]*os.File, n)
		for i := range sent {
			sent[i] = disk
		}
		if got, refused := receive(t, g, sent...); refused == nil && len(got) != n {
			t.Errorf("%d descriptors of %d, without an error", len(got), n)
		}
	}
	// It closes the excess descriptors after it has answered.
	kit.Eventually(t, time.Minute, func() error {
		_, err := receive(t, g, disk)
		return err
	})
	if starts != 1 {
		t.Errorf("started %d times", starts)
	}
}

// A connection's deadline ends the wait for data that does not arrive.
func TestGuardHeedsDeadlines(t *testing.T) {
	kit.Check(t)
	g, _ := guard(t)
	_, b := pair(t)
	if err := b.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Receive(b, 7, make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}
