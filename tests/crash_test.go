package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestKillWhileWriting kills the daemon repeatedly while several writers change files and
// names, and after each remount compares the files with what was acknowledged.
func TestKillWhileWriting(t *testing.T) {
	for _, tc := range []struct {
		name  string
		extra []string
	}{
		{name: "passthrough"},
		{name: "daemon", extra: []string{"--passthrough", "off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kit.Check(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			c := newCrash(mnt.Mount(t, mnt.Options{Extra: tc.extra}), seed)
			for i := range kit.Rounds(8, 8, 50) { // all of them, or the test fails
				if c.round(t, i); t.Failed() {
					t.Fatalf("in round %d", i)
				}
			}
		})
	}
}

// crash holds a mount and its writers, which outlive its daemons.
type crash struct {
	m     *mnt.M
	rng   *rand.Rand
	bytes []*bytesWriter
	names []*namesWriter
}

func newCrash(m *mnt.M, seed uint64) *crash {
	c := &crash{m: m, rng: rand.New(rand.NewPCG(seed, 0))}
	next := func() *rand.Rand { return rand.New(rand.NewPCG(seed, c.rng.Uint64())) }
	for i := range 3 {
		name := fmt.Sprintf("b%d", i)
		c.bytes = append(c.bytes,
			&bytesWriter{path: m.Path("host", name), rng: next()},
			&bytesWriter{path: m.Path("sim0", name), rng: next(), volatile: true})
	}
	for i, dev := range []string{"host", "sim0"} {
		c.names = append(c.names, &namesWriter{dir: m.Path(dev, "names"), id: i, rng: next()})
	}
	return c
}

// round lets all writers work until a number of changes is acknowledged, kills the daemon,
// mounts again and checks.
func (c *crash) round(t *testing.T, round int) {
	t.Helper()
	c.workAndKill(t, 1+c.rng.IntN(400))
	if round%8 == 3 {
		checkOffline(t, c.m)
	}
	c.m.Start()
	checkOneMount(t, c.m)
	var lost []string
	for _, w := range c.bytes {
		gone, err := w.check()
		if err != nil {
			t.Error(err)
		}
		if gone {
			lost = append(lost, w.name())
		}
	}
	var keys []string
	for _, w := range c.names {
		if err := w.check(c.m.Path("keys")); err != nil {
			t.Error(err)
		}
		keys = append(keys, w.keys()...)
	}
	checkKeys(t, c.m, keys)
	checkFsck(t, c.m, lost)
	c.removeLost(t, lost, round%2 == 0)
}

// workAndKill kills the daemon when all writers together have made the given number of
// changes, and waits for the writers.
func (c *crash) workAndKill(t *testing.T, changes int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(changes))
	var over atomic.Bool
	enough := make(chan struct{})
	stop := func() bool {
		if left.Add(-1) == 0 {
			close(enough)
		}
		return over.Load()
	}
	var writers sync.WaitGroup
	for _, work := range c.works() {
		writers.Go(func() {
			if err := work(stop); err != nil {
				t.Error(err)
			}
		})
	}
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-enough:
	case <-timer.C:
		t.Error("the writers have stopped by themselves")
	}
	c.m.Kill()
	over.Store(true) // an open host file can still be written to
	writers.Wait()
}

func (c *crash) works() []func(func() bool) error {
	var out []func(func() bool) error
	for _, w := range c.bytes {
		out = append(out, w.work)
	}
	for _, w := range c.names {
		out = append(out, w.work)
	}
	return out
}

// removeLost removes the lost files, by fsck or by their names.
func (c *crash) removeLost(t *testing.T, lost []string, byFsck bool) {
	t.Helper()
	if byFsck {
		if out, err := c.m.Run("fsck", "--remove-lost", c.m.Dir); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	for _, w := range c.bytes {
		if !slices.Contains(lost, w.name()) {
			continue
		}
		err := os.Remove(w.path)
		if byFsck != os.IsNotExist(err) {
			t.Errorf("remove %s, by fsck before %v: %v", w.path, byFsck, err)
		}
		w.forget()
	}
	checkFsck(t, c.m, nil)
}

// checkOffline checks the records of a dead daemon.
func checkOffline(t *testing.T, m *mnt.M) {
	t.Helper()
	out, err := m.Run("fsck", "--json", "--state-dir", m.StateDir)
	if err != nil && !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("fsck of the records of a dead daemon: %v\n%s", err, out)
	}
	if !strings.Contains(out, `"problems": []`) {
		t.Errorf("fsck of the records of a dead daemon:\n%s", out)
	}
}

// checkFsck checks that the records are sound, and which objects are lost.
func checkFsck(t *testing.T, m *mnt.M, lost []string) {
	t.Helper()
	report := checkFsckProblems(t, m)
	var got []string
	for _, l := range report.Lost {
		got = append(got, strings.TrimPrefix(l.Path, "/"))
	}
	slices.Sort(got)
	slices.Sort(lost)
	if !slices.Equal(got, lost) {
		t.Errorf("fsck lists as lost %q; lost are %q", got, lost)
	}
}

// checkFsckProblems checks that the records are sound.
func checkFsckProblems(t *testing.T, m *mnt.M) adminapi.FsckReport {
	t.Helper()
	report, err := m.Client().Fsck(t.Context(), adminapi.FsckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("fsck: %s", p.Text)
	}
	return report
}

// checkKeys checks that keys/ contains exactly these keys.
func checkKeys(t *testing.T, m *mnt.M, want []string) {
	t.Helper()
	entries, err := os.ReadDir(m.Path("keys"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("keys/ has %q, want %q", got, want)
	}
}

// checkOneMount checks that nothing is left of the previous mounts.
func checkOneMount(t *testing.T, m *mnt.M) {
	t.Helper()
	if points := mnt.MountedBelow(filepath.Dir(m.Dir)); len(points) != 2 {
		t.Errorf("want the mount and the host tier, mounted are %q", points)
	}
}

// TestKilledWithoutHolder kills a daemon that has no holder: nothing continues it, and the mount is dead for
// programs with open files, with none, and with sessions, until the next mount has what survives.
func TestKilledWithoutHolder(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Extra: []string{"--no-hold", "--passthrough", "off"}, Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	h := &held{t: t, m: m}
	if s := m.Status(); s.Holder != nil {
		t.Fatalf("the holder in the status is %+v", s.Holder)
	}
	must(t, os.WriteFile(m.Path("host", "file"), heldContent(), 0o600))
	must(t, os.WriteFile(m.Path("sim0", "file"), heldContent(), 0o600))
	open, err := os.Open(m.Path("host", "file"))
	must(t, err)
	defer func() { must(t, open.Close()) }()
	session, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	defer func() { must(t, session.Close()) }()

	m.KillDaemon()
	dead := func(when string) {
		t.Helper()
		if _, fault := open.ReadAt(make([]byte, 100), 0); !errors.Is(fault, unix.ENOTCONN) {
			t.Errorf("an open file, %s: %v", when, fault)
		}
		if _, fault := session.Exist(t.Context(), []string{"key"}); !errors.Is(fault, hetero.ErrDisconnected) {
			t.Errorf("a session, %s: %v", when, fault)
		}
	}
	dead("without a daemon")
	_, err = os.ReadDir(m.Path("host"))
	wantErrno(t, err, unix.ENOTCONN)
	wantErrno(t, os.WriteFile(m.Path("sim0", "more"), nil, 0o600), unix.ENOTCONN)

	m.Start()
	checkOneMount(t, m)
	dead("of the mount before")
	h.check(true)
	must(t, os.WriteFile(m.Path("sim0", "more"), heldContent(), 0o600))
}
