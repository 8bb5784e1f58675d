package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/sessions"
)

// TestHeld kills the daemon of a mount that a holder keeps, again and again, under programs that
// use all kinds of devices in every way that must not be noticed: no call fails, all bytes are right, and nothing is
// lost or left. In the end the driver of a card refuses what was kept, and files are lost, and nothing else. For
// 300 kills, each up to 2 s after the next daemon serves:
//
//	go test ./tests -run 'TestHeld$/auto' -kills 300 -timeout 1h
func TestHeld(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "opencl", "numpy")
	for _, passthrough := range []string{"auto", "off"} {
		t.Run(passthrough, func(t *testing.T) {
			settings := fmt.Sprintf("memory=%d", heldCardSize)
			cards := useStandInCards(t, settings)
			h := &held{t: t, devices: []string{"host", "sim0", "sim1", "ocl0", "cuda0", "cuda1"}, m: mnt.Prepare(t, mnt.Options{
				Devices: []string{
					"host,size=512MiB", "sim:0,size=256MiB", "sim:1,size=256MiB,mapped=true", "opencl:0,size=256MiB", "cuda:0", "cuda:1",
				},
				Extra: []string{"--passthrough", passthrough},
			})}
			h.m.Start()
			t.Cleanup(h.clear)
			h.torture(kit.Rounds(1, 2, 30), heldUsers(
				"host: names write append list nameless namelessdir map tensor direct move receive receivemap",
				"sim0: names write append nameless namelessdir exchange move tensor direct receive receivemap",
				"sim1: write map names move receive receivemap",
				"ocl0: names write append nameless map move tensor direct receive",
				"cuda0: names write append nameless exchange move map tensor direct receive receivemap",
				"cuda1: names write large receive",
				"host: keys standing handover appear copies watch values bound python",
				"sim0: keys handover memory files",
			))
			h.checkLeft()
			h.importFails(cards, settings)
			h.checkEnd()
			kit.Eventually(t, time.Minute, func() error { return cards.unused() })
		})
	}
}

// heldUsers returns programs by their directories. Each line names a device and what its programs do.
func heldUsers(lines ...string) map[string]func(*heldUser) error {
	uses := map[string]func(*heldUser) error{
		"names": (*heldUser).names, "write": (*heldUser).write, "append": (*heldUser).append, "list": (*heldUser).list,
		"nameless": (*heldUser).nameless, "namelessdir": (*heldUser).namelessDir, "map": (*heldUser).mapped, "tensor": (*heldUser).tensor,
		"direct": (*heldUser).direct, "exchange": (*heldUser).exchange, "move": (*heldUser).move, "large": (*heldUser).large,
		"receive": (*heldUser).receive, "receivemap": (*heldUser).receiveMapped,
		"keys": pairs((*sessions.Pair).Keys), "handover": pairs((*sessions.Pair).HandOver), "appear": pairs((*sessions.Pair).Appear),
		"copies": pairs((*sessions.Pair).Copies), "watch": pairs((*sessions.Pair).Watch), "values": pairs((*sessions.Pair).Values),
		"standing": (*heldUser).standing, "memory": (*heldUser).memory, "files": (*heldUser).files, "bound": (*heldUser).bound,
		"python": (*heldUser).python,
	}
	users := map[string]func(*heldUser) error{}
	for _, line := range lines {
		device, names, _ := strings.Cut(line, ":")
		for name := range strings.FieldsSeq(names) {
			users[device+"/"+name] = uses[name]
		}
	}
	return users
}

// held is a mount whose daemon is killed.
type held struct {
	t       *testing.T
	m       *mnt.M
	devices []string
}

// torture runs the users until the daemon has been killed often enough: usually so often.
func (h *held) torture(usual int, users map[string]func(*heldUser) error) {
	h.t.Helper()
	h.use(users, func() {
		count := *kills
		if count == 0 {
			count = usual
		}
		last := 0
		for range count {
			if h.t.Failed() {
				return
			}
			if rand.IntN(4) > 0 { // the holder gives up if it never comes so far
				kit.Eventually(h.t, time.Minute, func() error { _, err := h.m.Client().Version(h.t.Context()); return err })
			}
			<-time.After(time.Duration(200+rand.IntN(1800)) * time.Millisecond) // a random moment
			kit.Eventually(h.t, time.Minute, func() bool {
				pid := h.m.Living()
				if pid == 0 || pid == last {
					return false
				}
				last = pid
				return h.strike(pid)
			})
		}
	})
}

// strikes are the ways in which a daemon can die: as scripts, because a program that has mapped files of
// a stopped daemon may not get to run.
var strikes = []string{
	// By a fault of its own: the runtime prints its goroutines and exits. A library of a device may
	// have a handler, which takes the first signal.
	"kill -ABRT $0 || exit 1; while kill -ABRT $0 2>/dev/null; do sleep 0.05; done",
	"kill -STOP $0 && sleep 0.3 && kill -KILL $0",
	"kill -STOP $0 && sleep 0.3 && kill -CONT $0 && kill -KILL $0",
	"kill -KILL $0", "kill -KILL $0",
}

// strike ends a daemon in one of the ways in which it can die. It returns false if it has ended already.
func (h *held) strike(pid int) bool {
	return exec.Command("sh", "-c", strikes[rand.IntN(len(strikes))], strconv.Itoa(pid)).Run() == nil
}

// use runs the users while disturb does its work.
func (h *held) use(users map[string]func(*heldUser) error, disturb func()) {
	h.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for name, use := range users {
		all.Go(func() {
			w := &heldUser{
				t: h.t, python3: pythonFolder(h.t), dir: h.m.Path(name), mount: h.m.Dir, socket: socketOf(h.m), devices: h.devices, stop: stop,
				rng: rand.New(rand.NewPCG(1, uint64(len(name)))),
			}
			if err := os.Mkdir(w.dir, 0o755); err != nil {
				h.t.Error(err)
				return
			}
			for !w.stopped() && !h.t.Failed() {
				if err := use(w); err != nil {
					h.t.Errorf("%s, round %d: %v", name, w.round, err)
				}
				w.round++
			}
			if err := w.close(); err != nil {
				h.t.Errorf("%s, at the end: %v", name, err)
			}
			h.t.Logf("%s: %d rounds", name, w.round)
		})
	}
	disturb()
	close(stop)
	all.Wait()
}

// holderMemory bounds the memory of a holder, beside the pages of its program: these tests are a larger one than hmcfs, with which
// it has 11 to 15 MiB in all.
const holderMemory = 10 << 20

// checkLeft checks that no file was lost, and that nothing is left of what the users have used and freed.
func (h *held) checkLeft() {
	h.t.Helper()
	for _, device := range h.devices {
		h.checkEmpty(device)
	}
	for _, dir := range []string{"publish", "keys"} {
		if names, err := sortedNames(h.m.Path(dir)); err != nil || len(names) > 0 {
			h.t.Errorf("%s has %v, %v", dir, names, err)
		}
	}
	kit.Eventually(h.t, time.Minute, func() error {
		if has := h.m.Stats().Mount; has.OpenFiles > 1 || has.OpenDirs > 0 { // the statistics are a file
			return fmt.Errorf("%d files and %d directories are open", has.OpenFiles, has.OpenDirs)
		}
		return nil
	})
}

// checkEnd is checkLeft, and checks that the unmount ends the daemon and the holder.
func (h *held) checkEnd() {
	h.t.Helper()
	h.checkLeft()
	holder := h.m.Status().Holder
	if holder == nil || holder.Deaths == 0 {
		h.t.Fatalf("the holder in the status is %+v", holder)
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", holder.PID)); err != nil || string(name) != "hmcfs-holder\n" {
		h.t.Errorf("the holder is called %q: %v", name, err)
	}
	if has := ownBytes(h.t, holder.PID); has > holderMemory && !kit.Race() {
		h.t.Errorf("the holder has %d KiB, at most %d", has>>10, holderMemory>>10)
	}
	if out, err := h.m.Run("umount", h.m.Dir); err != nil {
		h.t.Fatalf("unmount: %v\n%s", err, out)
	}
	kit.Eventually(h.t, time.Minute, func() error {
		if unix.Kill(holder.PID, 0) == nil {
			return errors.New("the holder has not ended")
		}
		return nil
	})
}

// checkEmpty removes the files of a device and checks that its memory is free then.
func (h *held) checkEmpty(device string) {
	h.t.Helper()
	var found []string
	dir := h.m.Path(device)
	must(h.t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		found = append(found, path)
		return err
	}))
	for _, path := range slices.Backward(found[1:]) {
		state, err := getXattr(path, "user.hmc.state")
		if err == nil && state == "lost" && !strings.Contains(path, "/.keys/") { // where those of sessions are that have ended
			h.t.Errorf("lost is %s", path)
		}
		if name := strings.TrimPrefix(path, dir); strings.HasPrefix(name, "/name") && strings.Count(name, "/") > 1 {
			h.t.Errorf("left behind is %s", path)
		}
		must(h.t, os.Remove(path))
	}
	h.m.AwaitUnused(time.Minute, device)
}

// clear ends what a failed test has left.
func (h *held) clear() {
	if h.m.Client() != nil && h.m.Living() != 0 {
		h.m.Run("umount", "--force", h.m.Dir) //nolint:errcheck // the base directory is cleared in any case
	}
}

// heldUser is a program that uses one directory.
type heldUser struct {
	t                  *testing.T
	dir, mount, socket string
	devices            []string
	python3            string // the folder of the package

	round int
	rng   *rand.Rand
	stop  <-chan struct{}

	file *os.File
	// binds is the file that has the memory of file.
	binds string
	data  []byte
	view  []byte
	at    int
	// own and open are those of programs with sessions.
	own  *sessions.Pair
	open *client.File
}

func (w *heldUser) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// fresh returns bytes that depend on their position and on the round.
func (w *heldUser) fresh(n int) []byte { return kit.Bytes(w.rng.Uint64(), 0, n) }
