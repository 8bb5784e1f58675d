package holder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// daemonEnv makes the test binary a daemon: it is the path of the holder's socket. daemonFails makes
// the daemon exit before it is ready. daemonKilled names a file that gets a byte for each start; the daemon is killed
// before it is ready until it has more than killedStarts. daemonFull names one too: the daemon exits for want of space until it has more
// than fullStarts.
const (
	daemonEnv    = "HMCFS_TEST_HOLDER"
	daemonFails  = "HMCFS_TEST_HOLDER_FAILS"
	daemonFull   = "HMCFS_TEST_HOLDER_FULL"
	daemonKilled = "HMCFS_TEST_HOLDER_KILLED"
	killedStarts = 2 * mostTries
	fullStarts   = mostTries + 1
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(daemonEnv); socket != "" {
		daemon(socket)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// daemon owns the holder, and lives until it is killed or the holder's process ends. It returns if it
// fails.
func daemon(socket string) {
	if os.Getenv(daemonFails) != "" {
		return
	}
	if starts, full := os.LookupEnv(daemonFull); full && countStart(starts) < fullStarts {
		os.Exit(ExitFull)
	}
	starts, counts := os.LookupEnv(daemonKilled)
	n := killedStarts
	if counts {
		n = countStart(starts)
	}
	if n < killedStarts && n%2 == 0 {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	c, err := Dial(socket)
	if err == nil {
		err = c.Own()
	}
	if n < killedStarts {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if err == nil {
		err = c.Ready(startOf(socket))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// With a wait for nothing, Go's runtime would end the process.
	if c.conn.SetDeadline(time.Time{}) == nil {
		_, _ = c.conn.Read(make([]byte, 1))
	}
}

// countStart adds a byte to a file, and returns how many it had.
func countStart(name string) int {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteString("x")
	if st, serr := f.Stat(); err == nil && serr == nil {
		return int(st.Size()) - 1
	}
	return 0
}

// startOf returns how the daemon is started.
func startOf(socket string, env ...string) Start {
	return Start{
		Path: "/proc/self/exe", Args: []string{"daemon"}, Dir: "/",
		Env: append([]string{daemonEnv + "=" + socket}, env...),
	}
}

// rig is a holder in this process.
type rig struct {
	t      *testing.T
	socket string
	over   chan error
	logged *observer.ObservedLogs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	kit.Check(t)
	dir, err := os.MkdirTemp("", "hold") //nolint:usetesting // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	r := &rig{t: t, socket: filepath.Join(dir, adminapi.HolderSocket), over: make(chan error, 1)}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
	must(t, err)
	core, logged := observer.New(zap.InfoLevel)
	r.logged = logged
	stop := make(chan struct{})
	go func() {
		r.over <- Serve(t.Context(), Options{Listener: l, Stop: stop, Pause: time.Millisecond, Logger: zap.New(core)})
	}()
	t.Cleanup(func() {
		close(stop)
		kit.Eventually(t, time.Minute, func() bool { return len(r.over) > 0 })
		must(t, <-r.over)
	})
	return r
}

// dial connects, and owns the holder if own is set.
func (r *rig) dial(own bool) *Client {
	r.t.Helper()
	c, err := Dial(r.socket)
	must(r.t, err)
	if own {
		must(r.t, c.Own())
	}
	return c
}

// revives reports whether clients expect another daemon.
func (r *rig) revives() bool {
	return client.New(filepath.Join(filepath.Dir(r.socket), "daemon.sock")).Revives(r.t.Context())
}

func (r *rig) status() Status {
	r.t.Helper()
	c := r.dial(false)
	s, err := c.Status()
	must(r.t, errors.Join(err, c.Close()))
	return s
}

// finish ends the holder, which starts a daemon again when the one that owns it is killed.
func (r *rig) finish() {
	r.t.Helper()
	kit.Eventually(r.t, time.Minute, func() error {
		if owner := r.status().Owner; owner > 0 {
			_ = unix.Kill(owner, unix.SIGKILL) // it may have been killed by the last call
		}
		return Finish(r.socket)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memfd returns a file with content.
func memfd(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	_, err = f.WriteString(content)
	must(t, err)
	return f
}

// contents reads and closes files.
func contents(t *testing.T, files map[string]*os.File) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, f := range files {
		p := make([]byte, 100)
		n, _ := f.ReadAt(p, 0) // io.EOF
		all[name] = string(p[:n])
		must(t, f.Close())
	}
	return all
}

// TestKeep keeps, replaces and drops descriptors, which outlive the client.
func TestKeep(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	must(t, c.Ready(startOf(r.socket)))
	for _, name := range []string{"a/1", "a/2", "b/1", "a/1"} {
		f := memfd(t, name+" is here")
		must(t, errors.Join(c.Keep(name, f), f.Close()))
	}
	must(t, errors.Join(c.Drop("a/2"), c.Drop("nothing")))
	kept, err := c.Kept("")
	must(t, err)
	if got, want := contents(t, kept), map[string]string{"a/1": "a/1 is here", "b/1": "b/1 is here"}; !maps.Equal(got, want) {
		t.Errorf("kept are %v, want %v", got, want)
	}
	kept, err = c.Kept("b/")
	must(t, err)
	if got := slices.Collect(maps.Keys(contents(t, kept))); !slices.Equal(got, []string{"b/1"}) {
		t.Errorf("kept with b/ are %v", got)
	}
	if s := r.status(); s.Kept != 2 || s.Owner != os.Getpid() || s.Deaths != 0 {
		t.Errorf("status %+v", s)
	}
	must(t, c.End())
}

// TestRefused makes requests that a holder must refuse.
func TestRefused(t *testing.T) {
	r := newRig(t)
	owner, other := r.dial(true), r.dial(false)
	f := memfd(t, "x")
	defer func() { must(t, f.Close()) }()
	_, err := other.Kept("")
	for what, err := range map[string]error{
		"own": other.Own(), "keep": other.Keep("a", f), "kept": err, "drop": other.Drop("a"),
		"ready": other.Ready(startOf(r.socket)), "ready without arguments": owner.Ready(Start{Path: "x"}),
		"an empty name": owner.Keep("", f), "a long name": owner.Keep(strings.Repeat("n", maxName+1), f),
	} {
		if err == nil {
			t.Errorf("%s was not refused", what)
		}
	}
	if _, err := owner.ask(&message{Op: opKeep, Name: "a"}, nil); err == nil {
		t.Error("a name without a descriptor was kept")
	}
	if _, err := owner.ask(&message{Op: "else"}, f); err == nil || !strings.Contains(err.Error(), `unknown request "else"`) {
		t.Errorf("an unknown request: %v", err)
	}
	if err := other.Own(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second owner: %v", err)
	}
	must(t, other.Close())
	must(t, owner.End())
}

// TestRacingOwners has daemons race for a holder whose daemon has died: one gets it, and the others are told which.
func TestRacingOwners(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	must(t, errors.Join(c.Ready(Start{}), c.Close()))
	for range 20 {
		kit.Eventually(t, time.Minute, func() bool { return r.status().Owner == 0 })
		racers, refusals := make([]*Client, 8), make(chan error, 8)
		var all sync.WaitGroup
		for i := range racers {
			racers[i] = r.dial(false)
			all.Go(func() { refusals <- racers[i].Own() })
		}
		all.Wait()
		close(refusals)
		owners := 0
		for err := range refusals {
			if err == nil {
				owners++
			} else if !strings.Contains(err.Error(), "owns this holder") {
				t.Errorf("a daemon that came too late: %v", err)
			}
		}
		if owners != 1 {
			t.Errorf("%d daemons own the holder", owners)
		}
		for _, c := range racers {
			must(t, c.Close())
		}
	}
	kit.Eventually(t, time.Minute, func() error { return Finish(r.socket) })
}

// TestHolderDies has the holder die at each request of a daemon, before its answer and in the middle of one: that is an error, and every
// further request is one too.
func TestHolderDies(t *testing.T) {
	f := memfd(t, "x")
	defer func() { must(t, f.Close()) }()
	requests := map[string]func(c *Client) error{
		"own": (*Client).Own, "keep": func(c *Client) error { return c.Keep("a", f) }, "drop": func(c *Client) error { return c.Drop("a") },
		"kept": func(c *Client) error { _, err := c.Kept(""); return err }, "write": func(c *Client) error { return c.Write("a", []byte("x")) },
		"ready": func(c *Client) error { return c.Ready(startOf("x")) }, "next": func(c *Client) error { return c.Next(startOf("x")) },
		"status": func(c *Client) error { _, err := c.Status(); return err },
		"end":    (*Client).End,
	}
	for name, request := range requests {
		for _, more := range []bool{false, true} {
			socket, end := dyingHolder(t, func(conn *net.UnixConn) {
				if more && name == "kept" {
					_ = send(conn, &message{Name: "a", More: true}, f)
				}
			})
			c, err := Dial(socket)
			must(t, err)
			for range 2 {
				if request(c) == nil {
					t.Errorf("%s: the holder was not missed", name)
				}
			}
			_ = c.Close() // again, if the request has done so
			end()
		}
	}
}

// dyingHolder listens as a holder that ends each connection after a request, and after last. end returns once it has ended.
func dyingHolder(t *testing.T, last func(*net.UnixConn)) (socket string, end func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	dies := func(conn *net.UnixConn) {
		_, got, _ := receive(conn, make([]byte, maxMessage))
		if got != nil {
			_ = got.Close()
		}
		last(conn)
		_ = conn.Close()
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			all.Go(func() { dies(conn) }) // a write has a connection of its own
		}
	})
	return socket, func() {
		must(t, l.Close())
		all.Wait()
	}
}

// TestNoFreeDescriptor connects to a holder that can open no more files: it is served once there is room again.
func TestNoFreeDescriptor(t *testing.T) {
	r := newRig(t)
	var fds [8]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		fds[i] = fd
	}
	again, free := kit.FillDescriptors(t)
	refused := func() bool { return r.logged.FilterMessage("can't accept a connection").Len() > 0 }
	for i := 0; i < len(fds) && !refused(); i++ { // one may be accepted in the place of what an earlier test had open
		again()
		must(t, unix.Connect(fds[i], &unix.SockaddrUnix{Name: r.socket}))
	}
	kit.Eventually(t, time.Minute, refused)
	free()
	for _, fd := range fds {
		must(t, unix.Close(fd))
	}
	if s := r.status(); s.Owner != 0 {
		t.Errorf("the status is %+v", s)
	}
	r.finish()
}

// TestGarbage sends what is no message: the connection ends, and others do not.
func TestGarbage(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	for _, text := range []string{"{", "[]", "null", "\x00", strings.Repeat(" ", maxMessage+1), `{"op":5}`} {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
		must(t, err)
		_, _ = conn.Write([]byte(text)) // too long for the socket, perhaps
		_ = conn.CloseWrite()
		answer, _ := bytes.NewBuffer(nil), 0
		p := make([]byte, 1000)
		for n := 1; n > 0; {
			n, _ = conn.Read(p)
			answer.Write(p[:max(n, 0)])
		}
		if strings.Contains(answer.String(), "more") {
			t.Errorf("%.20q was answered with %s", text, answer)
		}
		must(t, conn.Close())
	}
	if _, err := c.Status(); err != nil {
		t.Errorf("after the garbage of others: %v", err)
	}
	must(t, c.End())
}

// TestWrite has the holder write, also while another write waits for its reader.
func TestWrite(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	var ends, kept [2]*os.File
	for i := range ends {
		var err error
		ends[i], kept[i], err = os.Pipe()
		must(t, errors.Join(err, c.Keep(fmt.Sprint(i), kept[i]), kept[i].Close()))
	}
	full := bytes.Repeat([]byte("0123456789"), 9000) // more than a pipe holds
	waits := make(chan error, 1)
	go func() { waits <- c.Write("0", full) }()
	for i := range 3 {
		must(t, c.Write("1", []byte{byte(i)}))
	}
	if _, err := c.Status(); err != nil {
		t.Errorf("status while a write waits: %v", err)
	}
	if got := make([]byte, 3); true {
		_, err := io.ReadFull(ends[1], got)
		if err != nil || !bytes.Equal(got, []byte{0, 1, 2}) {
			t.Errorf("written are %v, %v", got, err)
		}
	}
	got := make([]byte, len(full))
	_, err := io.ReadFull(ends[0], got)
	must(t, errors.Join(err, <-waits))
	if !bytes.Equal(got, full) {
		t.Error("other bytes were written")
	}
	if err := c.Write("2", nil); err == nil {
		t.Error("wrote to a descriptor that is not kept")
	}
	must(t, errors.Join(c.End(), ends[0].Close(), ends[1].Close()))
	if err := c.Write("0", nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
}

// TestRevive kills the daemon, and the ones that follow it.
func TestRevive(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	f := memfd(t, "x")
	must(t, errors.Join(c.Keep("mount/x", f), f.Close(), c.Ready(startOf(r.socket)), c.Close()))
	last := os.Getpid()
	for deaths := 1; deaths < 4; deaths++ {
		kit.Eventually(t, time.Minute, func() error {
			s := r.status()
			if s.Owner == 0 || s.Owner == last || s.Deaths != deaths || s.Kept != 1 {
				return fmt.Errorf("after %d deaths: %+v", deaths, s)
			}
			last = s.Owner
			return nil
		})
		if deaths < 3 {
			must(t, unix.Kill(last, unix.SIGKILL))
		}
	}
	// The test is the daemon now, and ends the holder in order.
	must(t, unix.Kill(last, unix.SIGSTOP))
	if err := Finish(r.socket); err == nil {
		t.Error("a holder with an owner was ended by another process")
	}
	r.finish()
}

// TestGivesUp has a daemon that cannot be started again: the mount ends, and the memory stays.
func TestGivesUp(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	f := memfd(t, "x")
	must(t, errors.Join(c.Keep("mount/x", f), c.Keep("memory/x", f), f.Close()))
	must(t, errors.Join(c.Ready(startOf(r.socket, daemonFails+"=1")), c.Close()))
	kit.Eventually(t, time.Minute, func() error {
		if s := r.status(); !s.GaveUp || s.Kept != 1 || s.Owner != 0 {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	if r.revives() {
		t.Error("clients wait for another daemon")
	}
	if n := r.logged.FilterMessageSnippet("has exited at once").Len(); n != mostTries {
		t.Errorf("%d daemons were started, want %d", n, mostTries)
	}
	// The next hmcfs mount gets the memory.
	c = r.dial(true)
	kept, err := c.Kept("")
	must(t, err)
	if got := contents(t, kept); !maps.Equal(got, map[string]string{"memory/x": "x"}) {
		t.Errorf("kept are %v", got)
	}
	must(t, c.End())
}

// TestKilledBeforeItServes has others kill the daemons that are started, before and after they own
// the holder: it does not give up as for those that fail.
func TestKilledBeforeItServes(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	starts := filepath.Join(t.TempDir(), "starts")
	must(t, errors.Join(c.Ready(startOf(r.socket, daemonKilled+"="+starts)), c.Close()))
	kit.Eventually(t, time.Minute, func() error {
		data, err := os.ReadFile(starts)
		if s := r.status(); err != nil || s.Owner == 0 || s.GaveUp || len(data) <= killedStarts {
			return fmt.Errorf("%d starts, status %+v: %w", len(data), s, err)
		}
		return nil
	})
	r.finish()
}

// TestFullDisk has daemons that find no space, oftener than others may fail, until there is some.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	starts := filepath.Join(t.TempDir(), "starts")
	must(t, errors.Join(c.Ready(startOf(r.socket, daemonFull+"="+starts)), c.Close()))
	kit.Eventually(t, time.Minute, func() error {
		data, err := os.ReadFile(starts)
		if s := r.status(); err != nil || s.Owner == 0 || s.GaveUp || len(data) <= fullStarts {
			return fmt.Errorf("%d starts, status %+v: %w", len(data), s, err)
		}
		return nil
	})
	if n := r.logged.FilterMessageSnippet("no space").Len(); n != 1 {
		t.Errorf("the log says %d times that there is no space", n)
	}
	r.finish()
}

// TestFullTries counts starts for want of space: they end, after more than a minute.
func TestFullTries(t *testing.T) {
	var n tries
	waits := time.Duration(0)
	for !n.enough() {
		waits += n.pause(firstPause)
		n.failed++
		n.countFull()
	}
	if waits < time.Minute || waits > 2*time.Minute || n.full != mostFull {
		t.Errorf("%d starts in %v", n.full, waits)
	}
}

// TestStartedByOthers leaves it to another process to start a daemon.
func TestStartedByOthers(t *testing.T) {
	r := newRig(t)
	c := r.dial(true)
	f := memfd(t, "x")
	must(t, errors.Join(c.Keep("mount/x", f), f.Close(), c.Ready(Start{}), c.Close()))
	kit.Eventually(t, time.Minute, func() bool { return r.status().Deaths == 1 })
	c = r.dial(true)
	if s := r.status(); s.Kept != 1 || s.GaveUp || !r.revives() {
		t.Errorf("status %+v", s)
	}
	must(t, c.End())
}

// TestNeverReady has a daemon that dies before it was ever ready: nobody waits for it.
func TestNeverReady(t *testing.T) {
	r := newRig(t)
	must(t, r.dial(true).Close())
	kit.Eventually(t, time.Minute, func() bool { return len(r.over) > 0 })
}

// TestStranger connects as another user.
func TestStranger(t *testing.T) {
	kit.Require(t, "root")
	r := newRig(t)
	must(t, os.Chmod(filepath.Dir(r.socket), 0o755))
	must(t, os.Chmod(r.socket, 0o777))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{daemonEnv + "=" + r.socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("another user's process owned the holder: %s", out)
	}
	if s := r.status(); s.Owner != 0 {
		t.Errorf("status %+v", s)
	}
	must(t, Finish(r.socket))
}
