package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/sessions"
)

var kills = flag.Int("kills", 0, "How often TestHeldNodes kills daemons. Default: few.")

// TestHeldNodes kills daemons under programs on both nodes that use the files and keys of
// the other one: no call fails, all bytes are right, and the nodes stay the same ones. For 100 kills:
//
//	go test ./tests/cluster -run TestHeldNodes -kills 100 -timeout 1h
func TestHeldNodes(t *testing.T) {
	for name, o := range map[string]worldOptions{
		"list": {machines: 2},
		"etcd": {machines: 2, etcd: plainEtcd()},
		"here": {machines: 2, etcd: plainEtcd(), here: true}, // they share memory
	} {
		t.Run(name, func(t *testing.T) {
			if name != "here" && *kills == 0 && !kit.Exhaustive() {
				t.Skip("one kind of cluster is enough for few kills; use -kills")
			}
			h := newHeld(t, o)
			before := h.epochs()
			h.use()
			if after := h.epochs(); after != before {
				t.Errorf("the nodes are %v, and were %v", after, before)
			}
			h.checkEnd()
		})
	}
}

// heldNodes are two nodes whose daemons are killed.
type heldNodes struct {
	t    *testing.T
	a, b *node
}

func newHeld(t *testing.T, o worldOptions) *heldNodes {
	t.Helper()
	// A lease that expires before a daemon has been started again on a busy machine takes the node's keys with it.
	o.flags = func(name string) []string { return append(slowNode(name), "--lease", "30s") }
	w := newWorld(t, o)
	h := &heldNodes{t: t}
	for i := range w.at {
		n := w.prepare(nodeName(i), i)
		t.Cleanup(func() {
			if t.Failed() && n.Living() != 0 {
				n.Run("umount", "--force", n.Dir) //nolint:errcheck // the base directory is cleared in any case
			}
		})
		n.Start()
	}
	w.meet()
	h.a, h.b = w.nodes[0], w.nodes[1]
	return h
}

// epochs returns the incarnations of the nodes, as seen by each other.
func (h *heldNodes) epochs() [2]members.Epoch {
	return [2]members.Epoch{h.epoch(h.a, "b"), h.epoch(h.b, "a")}
}

// epoch returns the incarnation of a node as seen by another one.
func (h *heldNodes) epoch(by *node, of members.Name) (epoch members.Epoch) {
	h.t.Helper()
	kit.Eventually(h.t, patience, func() error {
		if err := by.reaches(string(of)); err != nil {
			return err
		}
		text, err := by.Run("nodes", "--json", by.Dir)
		var out adminapi.Cluster
		if err = errors.Join(err, json.Unmarshal([]byte(text), &out)); err != nil {
			return err
		}
		for _, other := range out.Nodes {
			if other.Name == of && other.Connected {
				epoch = other.Epoch
				return nil
			}
		}
		return fmt.Errorf("%s is not connected to %s", by.name, of)
	})
	return epoch
}

// kill kills the daemon of a node that is not the one killed last, and returns its process.
func (h *heldNodes) kill(n *node, last int) (pid int) {
	h.t.Helper()
	kit.Eventually(h.t, patience, func() bool {
		pid = n.Living()
		return pid != 0 && pid != last && unix.Kill(pid, unix.SIGKILL) == nil
	})
	return pid
}

// use runs the programs until daemons have been killed often enough.
func (h *heldNodes) use() {
	h.t.Helper()
	programs := map[string]func(*heldUser) error{
		"write": (*heldUser).write, "append": (*heldUser).append, "names": (*heldUser).names,
		"copy": (*heldUser).copy, "keys": (*heldUser).keys, "nameless": (*heldUser).nameless,
		"set": pairs((*sessions.Pair).Keys), "handover": pairs((*sessions.Pair).HandOver), "appear": pairs((*sessions.Pair).Appear),
		"copies": pairs((*sessions.Pair).Copies), "watch": pairs((*sessions.Pair).Watch), "commands": (*heldUser).commands,
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, n := range []*node{h.a, h.b} {
		other := h.a
		if n == h.a {
			other = h.b
		}
		for name, program := range programs {
			for _, device := range []string{"host", "sim0"} {
				seed := uint64(len(name)) + uint64(n.name[0])
				u := &heldUser{
					n: n, other: other, dir: n.at(other.name, device, name), device: device, stop: stop,
					rng: rand.New(rand.NewPCG(seed, uint64(device[0]))), name: fmt.Sprintf("%s-%s-%s", n.name, device, name),
				}
				must(h.t, os.Mkdir(u.dir, 0o755))
				all.Go(func() { u.run(h.t, name, program) })
			}
		}
	}
	h.strike()
	close(stop)
	all.Wait()
}

// strike kills daemons at random moments.
func (h *heldNodes) strike() {
	h.t.Helper()
	count := *kills
	if count == 0 {
		count = kit.Rounds(1, 1, 6)
	}
	last := map[*node]int{}
	for i := range count {
		n := []*node{h.b, h.a}[i%2]
		if rand.IntN(4) > 0 { // programs give up if none ever comes so far, as on a slow machine
			kit.Eventually(h.t, patience, func() error { _, err := n.Client().Version(h.t.Context()); return err })
		}
		<-time.After(time.Duration(100+rand.IntN(600)) * time.Millisecond) // a random moment
		last[n] = h.kill(n, last[n])
	}
	for n, pid := range last {
		kit.Eventually(h.t, patience, func() bool { return n.Living() != 0 && n.Living() != pid })
	}
	<-time.After(100 * time.Millisecond) // in which the programs go on
}

// checkEnd checks that no publication is left, and no memory in use when all files are removed.
func (h *heldNodes) checkEnd() {
	h.t.Helper()
	for _, n := range []*node{h.a, h.b} {
		entries, err := os.ReadDir(n.Path("publish"))
		must(h.t, err)
		for _, e := range entries {
			h.t.Errorf("%s has not been received of %s", e.Name(), n.name)
			must(h.t, os.Remove(n.Path("publish", e.Name())))
		}
		for _, device := range []string{"host", "sim0"} {
			entries, err := os.ReadDir(n.Path(device))
			must(h.t, err)
			for _, e := range entries {
				must(h.t, os.RemoveAll(n.Path(device, e.Name())))
			}
		}
	}
	for _, n := range []*node{h.a, h.b} {
		for _, device := range []string{"host", "sim0"} {
			// A node that has died may have closed a file of another one, which keeps it for the node's timeout then.
			n.AwaitUnused(2*patience, device)
		}
		if n.Status().Holder == nil {
			h.t.Errorf("%s has no holder", n.name)
		}
		if out, err := n.Run("umount", n.Dir); err != nil {
			h.t.Errorf("unmount: %v\n%s", err, out)
		}
	}
}

// heldUser is a program on one node that uses a directory of another one.
type heldUser struct {
	n, other          *node
	name, dir, device string
	round             int
	rng               *rand.Rand
	stop              <-chan struct{}

	file *os.File
	data []byte
	own  *sessions.Pair
}

func (u *heldUser) run(t *testing.T, name string, program func(*heldUser) error) {
	for stopped := false; !stopped && !t.Failed(); u.round++ {
		begun := time.Now()
		if err := program(u); err != nil {
			t.Errorf("%s: %s, round %d, after %v: %v", u.n.name, name, u.round, time.Since(begun), err)
		}
		select {
		case <-u.stop:
			stopped = true
		default:
		}
	}
	if u.file != nil {
		if err := u.file.Close(); err != nil {
			t.Errorf("%s: %s: close: %v", u.n.name, name, err)
		}
	}
	if u.own != nil {
		if err := u.own.Close(); err != nil {
			t.Errorf("%s: %s: close: %v", u.n.name, name, err)
		}
	}
	t.Logf("%s: %s in %s of %s: %d rounds", u.n.name, name, u.device, u.other.name, u.round)
}

// fresh returns bytes that depend on their position and on the round.
func (u *heldUser) fresh(n int) []byte { return kit.Bytes(u.rng.Uint64(), 0, n) }

// openOnce opens a file that stays open.
func (u *heldUser) openOnce(flags int) (err error) {
	if u.file == nil {
		u.file, err = os.OpenFile(filepath.Join(u.dir, "file"), os.O_CREATE|flags, 0o600)
	}
	return err
}

// write writes and reads a file that is open all the time.
func (u *heldUser) write() error {
	const size = 1 << 20
	if err := u.openOnce(os.O_RDWR); err != nil {
		return err
	}
	if u.data == nil {
		u.data = make([]byte, size)
		if err := u.file.Truncate(size); err != nil {
			return err
		}
	}
	off, piece := u.rng.IntN(size-66000), u.fresh(1+u.rng.IntN(66000))
	if _, err := u.file.WriteAt(piece, int64(off)); err != nil {
		return err
	}
	copy(u.data[off:], piece)
	got := make([]byte, size)
	if _, err := u.file.ReadAt(got, 0); err != nil {
		return err
	}
	return kit.Same(u.file.Name(), got, u.data)
}

// append appends to a file that is open all the time.
func (u *heldUser) append() error {
	if err := u.openOnce(os.O_RDWR | os.O_APPEND); err != nil {
		return err
	}
	piece := u.fresh(1 + u.rng.IntN(5000))
	if _, err := u.file.Write(piece); err != nil {
		return err
	}
	u.data = append(u.data, piece...)
	if u.round%8 != 0 {
		return nil
	}
	got, err := os.ReadFile(u.file.Name())
	return errors.Join(err, kit.Same(u.file.Name(), got, u.data))
}

// names makes, moves and removes names.
func (u *heldUser) names() error {
	dir := filepath.Join(u.dir, strconv.Itoa(u.round))
	a, b, l, s := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "l"), filepath.Join(dir, "s")
	data := u.fresh(1 + u.rng.IntN(20000))
	for _, step := range []func() error{
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return kit.WriteNew(a, data) },
		func() error { return os.Link(a, l) },
		func() error { return os.Symlink("a", s) },
		func() error { return unix.Setxattr(a, "user.note", []byte(dir), unix.XATTR_CREATE) },
		func() error { return os.Rename(a, b) },
		func() error {
			got, err := os.ReadFile(b)
			return errors.Join(err, kit.Same(b, got, data))
		},
		func() error { return unix.Removexattr(b, "user.note") },
		func() error {
			entries, err := os.ReadDir(dir)
			if err == nil && len(entries) != 3 {
				err = fmt.Errorf("%s has %v", dir, entries)
			}
			return err
		},
		func() error { return os.Remove(l) }, func() error { return os.Remove(s) }, func() error { return unix.Unlink(b) },
		func() error { return unix.Rmdir(dir) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// nameless uses a file that has no name any more.
func (u *heldUser) nameless() error {
	f, err := os.OpenFile(filepath.Join(u.dir, "file"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // its content is gone then
	data := u.fresh(100000)
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = unix.Unlink(f.Name()); err != nil {
		return err
	}
	for range 20 {
		got := make([]byte, len(data)+1)
		n, err := f.ReadAt(got, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err = kit.Same(f.Name(), got[:n], data); err != nil {
			return err
		}
		off := u.rng.IntN(len(data) - 100)
		if _, err = f.WriteAt(u.fresh(100), int64(off)); err != nil {
			return err
		}
		if _, err = f.ReadAt(data[off:off+100], int64(off)); err != nil {
			return err
		}
		<-time.After(10 * time.Millisecond) // the file shall be open when a daemon is killed
	}
	return nil
}

// copy copies from this node's device to the other's, and back.
func (u *heldUser) copy() error {
	data := u.fresh(1 + u.rng.IntN(6<<20))
	here := u.n.Path("sim0", fmt.Sprintf("%s-%d", u.device, u.round))
	there, back := filepath.Join(u.dir, strconv.Itoa(u.round)), here+"-back"
	if err := kit.WriteNew(here, data); err != nil {
		return err
	}
	for _, c := range [][2]string{{here, there}, {there, back}} {
		if err := kit.CopyRange(c[0], c[1], len(data)); err != nil {
			return err
		}
		got, err := os.ReadFile(c[1])
		if err = errors.Join(err, kit.Same(c[1], got, data)); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(here), os.Remove(there), os.Remove(back))
}

// keys gives a file of this node a key, and reads it on the other node.
func (u *heldUser) keys() error {
	key := fmt.Sprintf("%s-%s-%d", u.n.name, u.device, u.round)
	own, data := u.n.Path(u.device, key), u.fresh(1+u.rng.IntN(30000))
	if err := kit.WriteNew(own, data); err != nil {
		return err
	}
	if err := unix.Setxattr(own, "user.hmc.key", []byte(key), 0); err != nil {
		return fmt.Errorf("set key %s: %w", key, err)
	}
	at := u.other.Path("keys", key)
	got, err := os.ReadFile(at)
	return errors.Join(err, kit.Same(at, got, data), os.Remove(own))
}

// pairs has a program use two sessions, one of each node.
func pairs(use func(*sessions.Pair) error) func(*heldUser) error {
	return func(u *heldUser) (err error) {
		if u.own == nil {
			u.own, err = sessions.NewPair(context.Background(), u.name, devices.Name(u.device), u.rng, socketOf(u.n), socketOf(u.other))
			if err != nil {
				return err
			}
		}
		u.own.Round = u.round
		return use(u.own)
	}
}

// socketOf returns the socket of a node's daemon.
func socketOf(n *node) string { return filepath.Join(n.RuntimeDir, "admin.sock") }

// commands has commands on the other node wait for a key of this one, and receive a publication.
func (u *heldUser) commands() error {
	key, data := fmt.Sprintf("%s-%d", u.name, u.round), u.fresh(1+u.rng.IntN(300_000))
	own, got, at := u.n.Path(u.device, key), u.other.Path(u.device, key+"-got"), u.other.Path("keys", key)
	give, take := []string{"mset", key + "=" + own}, []string{"wait", "--mount", u.other.Dir, "--timeout", "60s", key}
	if u.round%2 == 0 {
		give[0], take = "publish", []string{"subscribe", "--mount", u.other.Dir, "--timeout", "60s", key + "=" + got}
		own, at = got, got
	}
	if err := kit.WriteNew(u.n.Path(u.device, key), data); err != nil {
		return err
	}
	taken := make(chan error, 1)
	go func() { _, err := u.other.Run(take...); taken <- err }()
	if u.rng.IntN(2) == 0 {
		<-time.After(time.Duration(u.rng.IntN(300)) * time.Millisecond) // the other one waits already
	}
	_, err := u.n.Run(give...)
	if err = errors.Join(err, <-taken); err != nil {
		return err
	}
	have, err := os.ReadFile(at)
	return errors.Join(err, kit.Same(at, have, data), os.Remove(own))
}

// TestNodeThatLostMemory kills a daemon with its holder: the node that is mounted again is another one,
// and what was open of the one before is stale.
func TestNodeThatLostMemory(t *testing.T) {
	h := newHeld(t, worldOptions{machines: 2, here: true})
	write(t, h.b.Path("sim0", "x"), 1, mib)
	f, err := os.Open(h.a.at("b", "sim0", "x"))
	must(t, err)
	defer func() { _ = f.Close() }() // it was only read
	before := h.epoch(h.a, "b")
	h.b.Kill() // with its holder
	h.b.Start()
	if after := h.epoch(h.a, "b"); after <= before {
		t.Errorf("node b is %d, and was %d", after, before)
	}
	if _, err = f.ReadAt(make([]byte, 10), 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("read of a file of the node before: %v", err)
	}
	if _, err = os.ReadFile(h.a.at("b", "sim0", "x")); !errors.Is(err, unix.EIO) {
		t.Errorf("read of what is lost: %v", err)
	}
}
