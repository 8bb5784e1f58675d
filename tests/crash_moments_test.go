package tests

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// kills is the number of kills of each operation of TestKilledAtAnyMoment, and of each mount of held.torture; 0 is the usual one.
var kills = flag.Int("kills", 0, "How often TestKilledAtAnyMoment kills each operation, and the other tests of killed daemons (TestHeld…) the daemon of each mount. Default: few.")

// TestKilledAtAnyMoment kills the daemon, or the command that works on its records, at random
// moments of each operation that starts or ends a mount. The next mount uses what is left:
// everything that was acknowledged exists, or is reported as lost. For 500 moments of each:
//
//	go test ./tests -run TestKilledAtAnyMoment -kills 500 -timeout 2h
func TestKilledAtAnyMoment(t *testing.T) {
	for name, kill := range map[string]func(*moments){
		"start":       (*moments).start,
		"umount":      func(k *moments) { k.umount() },
		"umount-keep": func(k *moments) { k.umount("--keep") },
		"fsck":        (*moments).fsck,
		"upgrade":     (*moments).upgrade,
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			k := &moments{t: t, m: mnt.Mount(t, mnt.Options{}), rng: rand.New(rand.NewPCG(seed, 0)), freed: name == "umount"}
			rounds := *kills
			if rounds == 0 {
				rounds = kit.Rounds(1, 2, 40)
			}
			for round := range rounds {
				if k.round(round, kill); t.Failed() {
					t.Fatalf("in round %d", round)
				}
			}
			t.Logf("%d kills, %d of them when the operation was over; freed all: %d", rounds, k.late, k.gone)
		})
	}
}

// moments kills one operation repeatedly.
type moments struct {
	t   *testing.T
	m   *mnt.M
	rng *rand.Rand
	// freed is true if the operation, once complete, frees everything.
	freed bool
	// took is the duration of the operation, late counts the kills after its end, and gone the
	// times that everything was freed.
	took       time.Duration
	late, gone int
}

// hostFiles is the number of files of host memory in a round.
const hostFiles = 20

// bytesOf returns the content of a file of a round.
func bytesOf(round, i int) []byte { return kit.Bytes(uint64(round), int64(i), 3001*i) }

// round creates files, has an operation killed and mounts again.
func (k *moments) round(round int, kill func(*moments)) {
	k.t.Helper()
	var names []string
	for i := range hostFiles {
		names = append(names, k.m.Path("host", fmt.Sprintf("%d-%d", round, i)))
		must(k.t, os.WriteFile(names[i], bytesOf(round, i), 0o600))
	}
	far := k.m.Path("sim0", fmt.Sprint(round))
	must(k.t, os.WriteFile(far, bytesOf(round, 3), 0o600))
	must(k.t, unix.Setxattr(far, "user.note", []byte("kept"), 0))
	kill(k)
	k.m.Start()
	checkNothingAside(k.t, k.m)
	if _, err := os.Lstat(far); k.freed && errors.Is(err, fs.ErrNotExist) {
		k.gone++
		for _, dev := range []string{"host", "sim0"} {
			if left, err := os.ReadDir(k.m.Path(dev)); err != nil || len(left) > 0 {
				k.t.Errorf("some of it is gone, and left in %s is %v, %v", dev, left, err)
			}
		}
		return
	}
	for i, name := range names {
		k.whole(name, bytesOf(round, i), k.freed)
	}
	if note, err := getXattr(far, "user.note"); err != nil || note != "kept" {
		k.t.Errorf("the attribute of %s is %q, %v", far, note, err)
	}
	k.whole(far, bytesOf(round, 3), true)
}

// whole checks that a file has its bytes or, if it may have lost them, that it is reported as
// lost, and removes it.
func (k *moments) whole(name string, content []byte, mayBeLost bool) {
	k.t.Helper()
	got, err := os.ReadFile(name)
	state, stateErr := getXattr(name, "user.hmc.state")
	at := kit.FirstDiff(got, content)
	whole := err == nil && at < 0
	lost := mayBeLost && errors.Is(err, unix.EIO) && state == "lost"
	if !whole && !lost || stateErr != nil {
		k.t.Errorf("%s: state %s, %v, %d bytes, %v, differs at %d", name, state, stateErr, len(got), err, at)
	}
	must(k.t, os.Remove(name))
}

// checkNothingAside checks that the records are sound and belong to the host memory.
func checkNothingAside(t *testing.T, m *mnt.M) {
	t.Helper()
	if report := checkFsckProblems(t, m); len(report.Aside) > 0 {
		t.Errorf("set aside are %v", report.Aside)
	}
	if strings.Contains(m.Log(), "do not match the host memory") {
		t.Error("the records are taken for older ones")
	}
}

// moment returns the delay from the start of an operation to its kill: up to somewhat longer
// than its duration. The first run is not killed, but timed.
func (k *moments) moment() time.Duration { return time.Duration(k.rng.Int64N(int64(k.took)*5/4 + 1)) }

// killIn runs an operation and kills it.
func (k *moments) killIn(begin func() (end <-chan struct{}), kill func()) {
	began := time.Now()
	end := begin()
	if k.took == 0 {
		<-end
		k.took = time.Since(began)
		return
	}
	timer := time.NewTimer(k.moment()) // the kill may come at any moment
	defer timer.Stop()
	select {
	case <-end:
		k.late++
	case <-timer.C:
	}
	kill()
}

// start kills the daemon while it starts.
func (k *moments) start() {
	k.m.Kill()
	k.starting()
	k.m.Kill()
}

func (k *moments) starting() {
	if k.took == 0 {
		began := time.Now()
		k.m.Start()
		k.took = time.Since(began)
		return
	}
	k.m.Begin()
	<-time.After(k.moment()) // the kill may come at any moment
}

// umount kills the daemon while it shuts down.
func (k *moments) umount(flags ...string) {
	var end <-chan struct{}
	k.killIn(func() <-chan struct{} {
		cmd := k.m.Command(append(append([]string{"umount"}, flags...), k.m.Dir)...)
		must(k.t, cmd.Start())
		end = endOf(cmd)
		return end
	}, k.m.Kill)
	select {
	case <-end:
	case <-time.After(mntPatience):
		k.t.Fatal("umount does not end when the daemon is killed")
	}
}

// endOf returns a channel that is closed when a command has ended.
func endOf(cmd *exec.Cmd) <-chan struct{} {
	end := make(chan struct{})
	go func() {
		defer close(end)
		_ = cmd.Wait() // it may be killed
	}()
	return end
}

// fsck kills a check of the records of a dead daemon.
func (k *moments) fsck() {
	k.m.Kill()
	cmd := k.m.Command("fsck", "--repair", "--state-dir", k.m.StateDir)
	var end <-chan struct{}
	k.killIn(func() <-chan struct{} {
		must(k.t, cmd.Start())
		end = endOf(cmd)
		return end
	}, func() { _ = cmd.Process.Kill() }) // it may have ended
	<-end
}

// upgrade kills the daemon while it opens records of an hmcfs without publish/, and without
// the link between the records and the host memory.
func (k *moments) upgrade() {
	k.m.Umount("--keep")
	k.downgrade()
	k.starting()
	k.m.Kill()
}

// downgrade rewrites the records in format 1.
func (k *moments) downgrade() {
	k.t.Helper()
	kv, err := badgerkv.Open(k.t.Context(), badgerkv.Options{Dir: filepath.Join(k.m.StateDir, "metadata")})
	must(k.t, err)
	publish := binary.BigEndian.AppendUint64([]byte{'i'}, uint64(metadata.PublishIno))
	err = kv.Update(k.t.Context(), func(t metadata.KVTxn) error {
		super, serr := t.Get([]byte{'S'})
		if serr != nil {
			return serr
		}
		old := append([]byte{}, super...)
		old[1] = 1 // the format version
		return errors.Join(t.Set([]byte{'S'}, old), t.Delete(publish), t.Delete([]byte("nhost")))
	})
	must(k.t, errors.Join(err, kv.Close()))
	numbers, err := filepath.Glob(filepath.Join(k.m.RuntimeDir, "host", "number-*"))
	must(k.t, err)
	for _, n := range numbers {
		must(k.t, os.Remove(n))
	}
}
