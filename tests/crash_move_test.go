package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// Moving moveSize bytes takes about a tenth of a second at a slow device's bandwidth.
const (
	moveSize = 6 << 20
	moveHalf = 60 * time.Millisecond
)

// TestKillWhileMoving kills the daemon while a file moves between devices: it is complete
// under one of its names, or lost under one.
func TestKillWhileMoving(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=64MiB", "sim:0,size=64MiB,bandwidth=60MB/s", "sim:1,size=64MiB,bandwidth=60MB/s",
	}})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ways := [][2]string{{"host", "sim0"}, {"sim0", "sim1"}, {"sim0", "host"}}
	for i := range kit.Rounds(6, 6, 36) {
		v := &move{
			m: m, from: m.Path(ways[i%len(ways)][0], "from"), to: m.Path(ways[i%len(ways)][1], "to"),
			content: kit.Bytes(rng.Uint64(), 0, moveSize), replaced: kit.Bytes(rng.Uint64(), 0, 100_000),
			over: rng.IntN(2) == 0, after: time.Duration(rng.IntN(200)) * time.Millisecond,
		}
		t.Run(fmt.Sprintf("%d-%s-%s", i, ways[i%len(ways)][0], ways[i%len(ways)][1]), v.run)
	}
	// The last one is killed in its middle, so that half of the file is on the host.
	half := &move{
		m: m, from: m.Path("sim0", "from"), to: m.Path("host", "to"), content: kit.Bytes(rng.Uint64(), 0, moveSize), after: moveHalf,
	}
	t.Run("half", half.run)
	m.AwaitUnused(time.Minute, "host")
}

// TestHalfAMoveIsNeverSeen repeats an aborted move of a file that now consists of holes: they
// contain none of the bytes of the first move.
func TestHalfAMoveIsNeverSeen(t *testing.T) {
	kit.Check(t)
	// Slow enough that seconds are left when the test sees that it has started.
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB,bandwidth=2500kB/s"}})
	from, to := m.Path("sim0", "from"), m.Path("host", "to")
	must(t, os.WriteFile(from, kit.Bytes(1, 0, moveSize), 0o644))
	result := make(chan error, 1)
	go func() { result <- renameAcross(from, to) }()
	kit.Eventually(t, time.Minute, func() bool { return m.Device("host").Used > moveSize/4 })
	m.Kill()
	t.Logf("the move that was killed: %v", <-result)
	m.Start()
	if _, err := os.Lstat(from); err != nil {
		t.Fatalf("the move was over before it could be killed: %v", err)
	}
	must(t, os.Truncate(from, 0))
	must(t, os.Truncate(from, moveSize))
	must(t, renameAcross(from, to))
	got, err := os.ReadFile(to)
	if i := kit.FirstDiff(got, make([]byte, moveSize)); err != nil || i >= 0 {
		t.Errorf("%d bytes, byte %d is not zero, %v", len(got), i, err)
	}
}

// move is one move of a file, which is killed.
type move struct {
	m        *mnt.M
	from, to string
	content  []byte
	// over is true if a file with the content replaced exists under the new name.
	over     bool
	replaced []byte
	// after is the time from the start of the move to the kill.
	after time.Duration
}

func (v *move) run(t *testing.T) {
	if err := os.WriteFile(v.from, v.content, 0o640); err != nil {
		t.Fatal(err)
	}
	if v.over {
		if err := os.WriteFile(v.to, v.replaced, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	result := make(chan error, 1)
	go func() { result <- renameAcross(v.from, v.to) }()
	timer := time.NewTimer(v.after)
	defer timer.Stop()
	<-timer.C
	v.m.Kill()
	err := <-result
	v.m.Start()
	v.check(t, err == nil)
	checkFsckProblems(t, v.m)
	for _, name := range []string{v.from, v.to} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// renameAcross renames, and retries while the file counts as open: the kernel notifies the
// daemon of a close some time later.
func renameAcross(from, to string) error {
	for {
		err := unix.Rename(from, to)
		if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// check checks the state after the remount; done is true if the move was acknowledged.
func (v *move) check(t *testing.T, done bool) {
	t.Helper()
	_, err := os.Lstat(v.from)
	still := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	t.Logf("killed after %v: moved %v, acknowledged %v, over another %v", v.after, !still, done, v.over)
	switch {
	case still && done:
		t.Errorf("the move was acknowledged, and %s is still there", v.from)
	case !still:
		wholeOrLost(t, v.to, v.content)
	default:
		wholeOrLost(t, v.from, v.content)
		if _, err := os.Lstat(v.to); v.over {
			wholeOrLost(t, v.to, v.replaced)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is under both names: %v", err)
		}
	}
}

// wholeOrLost checks a file after a remount: on the host it must have its bytes, on a device
// it must be lost.
func wholeOrLost(t *testing.T, path string, content []byte) {
	t.Helper()
	device, err := getXattr(path, "user.hmc.device")
	if err != nil {
		t.Error(err)
	}
	state, err := getXattr(path, "user.hmc.state")
	if err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(path)
	if device != "host" {
		if state != "lost" || !errors.Is(err, unix.EIO) {
			t.Errorf("%s: state %s, read %d bytes, %v; want it lost", path, state, len(got), err)
		}
		return
	}
	if at := kit.FirstDiff(got, content); err != nil || state != "live" || at >= 0 {
		t.Errorf("%s: state %s, %d bytes, %v, differs at %d; want %d bytes", path, state, len(got), err, at, len(content))
	}
}
