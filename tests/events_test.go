package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// listener collects the lines of .hmcfs/events.
type listener struct {
	file *os.File
	over chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	heard []heard
	// +checklocks:mu
	bad []string
}

// heard holds the fields of an event that a test checks.
type heard struct {
	Seq    uint64 `json:"seq"`
	Time   string `json:"time"`
	Event  string `json:"event"`
	Key    string `json:"key"`
	Ino    uint64 `json:"ino"`
	Device string `json:"device"`
	Size   uint64 `json:"size"`
}

// listen opens the stream and reads it in pieces of n bytes until it ends.
func listen(t *testing.T, m *mnt.M, n int) *listener {
	t.Helper()
	l := &listener{file: open(t, m.Path(".hmcfs", "events"), os.O_RDONLY), over: make(chan struct{})}
	go func() {
		defer close(l.over)
		lines := bufio.NewScanner(bufio.NewReaderSize(l.file, n))
		for lines.Scan() {
			l.add(lines.Bytes())
		}
		_ = l.file.Close() // the end of a mount waits for it
	}()
	return l
}

func (l *listener) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var e heard
	if err := json.Unmarshal(line, &e); err != nil {
		l.bad = append(l.bad, string(line))
		return
	}
	l.heard = append(l.heard, e)
}

// words returns the received events, each as kind and key.
func (l *listener) words() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, e := range l.heard {
		all = append(all, e.Event+" "+e.Key)
	}
	return all
}

// wantEvents waits until exactly these events have been received.
func wantEvents(t *testing.T, l *listener, want ...string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() bool { return len(l.words()) >= len(want) })
	if got := l.words(); !slices.Equal(got, want) {
		t.Errorf("heard\n%q, want\n%q", got, want)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bad) > 0 {
		t.Errorf("lines that are no JSON: %q", l.bad)
	}
	for i, e := range l.heard {
		if _, err := time.Parse(time.RFC3339Nano, e.Time); err != nil || e.Ino == 0 || e.Device == "" || i > 0 && e.Seq != l.heard[i-1].Seq+1 {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}

// TestEvents listens to keys and publications: each listener receives the events since its
// start, however small the pieces in which it reads.
func TestEvents(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	p := place{name: "sim0", dir: openDir(t, m.Path("sim0")), m: m}
	early := []*listener{listen(t, m, 16), listen(t, m, 1<<16)}
	create(t, p.path("f"), 1, 1000)
	must(t, unix.Setxattr(p.path("f"), "user.hmc.key", []byte("k"), 0))
	must(t, unix.Removexattr(p.path("f"), "user.hmc.key"))
	offer := p.publish(t, "a", 1, 5000)
	wantOffered(t, offer, 1, 5000)
	late := listen(t, m, 4096)
	must(t, os.Remove(p.publish(t, "b", 2, 10)))
	run(t, "mv", p.publish(t, "c", 3, 10), p.path("received"))
	second := []string{"published b", "withdrawn b", "published c", "consumed c"}
	first := []string{"created k", "removed k", "published a", "consumed a"}
	for _, l := range early {
		wantEvents(t, l, append(slices.Clone(first), second...)...)
	}
	wantEvents(t, late, second...)
	l := early[0]
	l.mu.Lock()
	e := l.heard[2]
	l.mu.Unlock()
	if e.Size != 5000 || e.Device != "sim0" {
		t.Errorf("of a publication is heard %+v", e)
	}
	// Listeners do not prevent an unmount, and they see the end of the stream.
	m.Umount()
	for _, l := range append(early, late) {
		<-l.over
	}
}

// TestCopiesOfTheTreeEnd copies and searches the whole mount, which includes a file whose
// reads would block forever.
func TestCopiesOfTheTreeEnd(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	create(t, m.Path("sim0", "a"), 1, 100_000)
	to := t.TempDir()
	for _, command := range [][]string{
		{"cp", "-r", m.Dir, filepath.Join(to, "cp")},
		{"tar", "-cf", filepath.Join(to, "tar"), "-C", m.Dir, "."},
		{"grep", "-rq", "it is nowhere", m.Dir},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		out := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		must(t, cmd.Start())
		hung := time.AfterFunc(mntPatience, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		if !hung.Stop() {
			t.Errorf("%s waits for ever", command[0])
		} else if err != nil && command[0] != "grep" { // which exits with an error if it finds nothing
			t.Errorf("%q: %v: %s", command, err, out)
		}
	}
	wantContent(t, filepath.Join(to, "cp", "sim0", "a"), 1, 100_000)
}

// TestEventsWaitIsInterrupted interrupts programs that wait for events.
func TestEventsWaitIsInterrupted(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	p := place{name: "host", dir: openDir(t, m.Path("host")), m: m}
	for _, signal := range []os.Signal{os.Interrupt, unix.SIGTERM, os.Kill} {
		out, in, err := os.Pipe()
		must(t, err)
		cmd := exec.Command("cat", m.Path(".hmcfs", "events"))
		cmd.Stdout = in
		must(t, cmd.Start())
		must(t, in.Close())
		// It has received an event, and now waits for more.
		lines := bufio.NewReader(out)
		heardOne := make(chan error, 1)
		go func() {
			_, err := lines.ReadBytes('\n')
			heardOne <- err
		}()
		kit.Eventually(t, mntPatience, func() bool {
			must(t, os.Remove(p.publish(t, "t", 1, 10)))
			return len(heardOne) > 0
		})
		must(t, <-heardOne)
		must(t, cmd.Process.Signal(signal))
		if cmd.Wait() == nil {
			t.Errorf("cat ended well by %v", signal)
		}
		must(t, out.Close())
	}
}

// TestEventsFile checks the stream as a file.
func TestEventsFile(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	name := m.Path(".hmcfs", "events")
	if st := lstat(t, name); st.Mode&0o7777 != 0o444 || st.Size != 0 {
		t.Errorf("it has mode %o and %d bytes", st.Mode, st.Size)
	}
	for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC} {
		_, err := os.OpenFile(name, flags, 0)
		wantErrno(t, err, unix.EPERM)
	}
	f := open(t, name, os.O_RDONLY)
	if _, err := f.Seek(10, io.SeekStart); !errors.Is(err, unix.ESPIPE) {
		t.Errorf("it can be sought in: %v", err)
	}
	must(t, f.Close())
}

// TestEventsOfOthers lets a user listen that may not read everything.
func TestEventsOfOthers(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	p := place{name: "host", dir: openDir(t, m.Path("host")), m: m}
	var f *os.File
	mnt.AsUser(t, userBob(), func() {
		var err error
		if f, err = os.Open(m.Path(".hmcfs", "events")); err != nil {
			t.Error(err)
		}
	})
	for i, mode := range []os.FileMode{0o600, 0o644} {
		made := filepath.Join(p.dir, "made")
		must(t, os.WriteFile(made, []byte("x"), mode))
		must(t, os.Rename(made, m.Path("publish", []string{"private", "public"}[i])))
	}
	buf := make([]byte, 1<<16)
	n, err := f.Read(buf)
	must(t, err)
	if !bytes.Contains(buf[:n], []byte(`"public"`)) || bytes.Contains(buf[:n], []byte(`"private"`)) {
		t.Errorf("bob hears %s", buf[:n])
	}
	must(t, f.Close())
}
