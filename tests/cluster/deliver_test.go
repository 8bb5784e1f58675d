package cluster

import (
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

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// offer publishes a file of sim0 on a node.
func (n *node) offer(t *testing.T, key string, seed uint64, size int) {
	t.Helper()
	write(t, n.Path("sim0", key), seed, size)
	if out, err := n.Run("publish", key+"="+n.Path("sim0", key)); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// subscribe returns the command that receives a key.
func (n *node) subscribe(args ...string) *exec.Cmd {
	return n.Command(append([]string{"subscribe", "--mount", n.Dir, "--timeout", "30s"}, args...)...)
}

// offered checks that a key is still published, with all its bytes, by receiving it.
func offered(t *testing.T, owner, by *node, key string, seed uint64, size int) {
	t.Helper()
	if _, err := os.Stat(owner.Path("publish", key)); err != nil {
		t.Errorf("what was not delivered is lost: %v", err)
		return
	}
	target := by.Path("sim0", "received-"+key)
	if out, err := by.subscribe(key + "=" + target).CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
		return
	}
	verify(t, target, seed, size)
	gone(t, owner.Path("publish", key))
	must(t, os.Remove(target))
}

// empty returns an error while a device of a node contains files.
func empty(n *node) error {
	for _, device := range []string{"host", "sim0"} {
		entries, err := os.ReadDir(n.Path(device))
		if err != nil {
			return err
		}
		for _, e := range entries {
			return fmt.Errorf("%s has %s/%s", n.name, device, e.Name())
		}
	}
	return nil
}

// An object that can't be delivered stays published, on its own node and on any other,
// whatever its size.
func TestOnlyWhatIsDeliveredIsReceived(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2, here: true})
	owner := nodes[0]
	small := mnt.Tmpfs(t, "64k")
	defer kit.Eventually(t, patience, func() error { return errors.Join(empty(owner), empty(nodes[1])) })
	for _, by := range nodes {
		for _, size := range []int{0, 100, 300_000, bigSize} {
			t.Run(fmt.Sprintf("%d bytes to %s", size, by.name), func(t *testing.T) {
				if size > 0 {
					t.Run("full device", func(t *testing.T) { toFull(t, owner, by, size) })
				}
				if size > 64<<10 {
					t.Run("full directory", func(t *testing.T) { toSmall(t, owner, by, small, size) })
					t.Run("broken pipe", func(t *testing.T) { toHead(t, owner, by, size) })
				}
				t.Run("taken name", func(t *testing.T) { toTaken(t, owner, by, size) })
			})
		}
	}
}

// toFull writes to a device that accepts no bytes.
func toFull(t *testing.T, owner, by *node, size int) {
	owner.offer(t, "full", 41, size)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	cmd := by.subscribe("full")
	cmd.Stdout = full
	if err = cmd.Run(); err == nil {
		t.Error("a full device took it")
	}
	must(t, full.Close())
	if out, err := by.subscribe("-f", "full=/dev/full").CombinedOutput(); err == nil {
		t.Errorf("a full device took it: %s", out)
	}
	offered(t, owner, by, "full", 41, size)
}

// toSmall writes to a file system with too little space.
func toSmall(t *testing.T, owner, by *node, dir string, size int) {
	owner.offer(t, "small", 42, size)
	if out, err := by.subscribe("small=" + filepath.Join(dir, "t")).CombinedOutput(); err == nil {
		t.Errorf("it has no room: %s", out)
	}
	left, err := os.ReadDir(dir)
	if must(t, err); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	offered(t, owner, by, "small", 42, size)
}

// toHead writes to a program that reads only a part.
func toHead(t *testing.T, owner, by *node, size int) {
	owner.offer(t, "head", 43, size)
	cmd := by.subscribe("head")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err = io.ReadFull(out, make([]byte, 100)); err != nil {
		t.Error(err)
	}
	must(t, out.Close())
	if err = cmd.Wait(); err == nil {
		t.Error("nobody has read it")
	}
	offered(t, owner, by, "head", 43, size)
}

// toTaken writes to a name that exists.
func toTaken(t *testing.T, owner, by *node, size int) {
	owner.offer(t, "taken", 44, size)
	path := filepath.Join(t.TempDir(), "there")
	write(t, path, 45, 10)
	if out, err := by.subscribe("taken=" + path).CombinedOutput(); err == nil {
		t.Errorf("it replaced a file: %s", out)
	}
	verify(t, path, 45, 10)
	offered(t, owner, by, "taken", 44, size)
}

// Wherever a subscriber is killed, the object either is published or has arrived completely.
func TestKilledSubscriberLosesNothing(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2, here: true})
	owner := nodes[0]
	outside := t.TempDir()
	var killed, arrived int
	for i := range kit.Rounds(6, 8, 48) {
		by := nodes[i%2]
		target := filepath.Join(outside, "t")
		if i%4 > 1 {
			target = by.Path("sim0", "t")
		}
		seed := uint64(100 + i)
		owner.offer(t, "k", seed, bigSize)
		cmd := by.subscribe("k=" + target)
		must(t, cmd.Start())
		// How far it gets by then depends on the machine.
		timer := time.AfterFunc(time.Duration(i*7%130)*time.Millisecond, func() {
			_ = cmd.Process.Signal([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT}[i%3])
		})
		if err := cmd.Wait(); err != nil {
			killed++
		}
		timer.Stop()
		if once(t, owner, by, target, seed) {
			arrived++
		}
	}
	t.Logf("%d ended early, %d arrived", killed, arrived)
	kit.Eventually(t, patience, func() error { return errors.Join(empty(owner), empty(nodes[1])) })
}

// once checks that an object has arrived, or can be received.
func once(t *testing.T, owner, by *node, target string, seed uint64) (arrived bool) {
	t.Helper()
	if _, err := os.Stat(target); err == nil {
		arrived = true
		verify(t, target, seed, bigSize)
		gone(t, owner.Path("publish", "k"))
		must(t, os.Remove(target))
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if !strings.HasPrefix(target, by.Dir) { // elsewhere the file may remain for a while
		left, err := os.ReadDir(filepath.Dir(target))
		if must(t, err); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if !arrived {
		offered(t, owner, by, "k", seed, bigSize)
	}
	return arrived
}

// A receiving node that is killed in the middle leaves the object published, and no files of
// its own.
func TestKilledReceivingNode(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2})
	owner, by := nodes[0], nodes[1]
	owner.offer(t, "k", 51, bigSize)
	cmd := by.subscribe("k")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 100)) // it has started, and waits for its reader
	must(t, err)
	text, err := owner.Run("subscribe", "--mount", owner.Dir, "--timeout", "1s", "k="+filepath.Join(t.TempDir(), "t"))
	if err == nil {
		t.Errorf("received by two: %s", text)
	}
	left := by.Path("host", ".hmcfs-receiving-1")
	write(t, left, 52, mib)
	must(t, unix.Setxattr(left, "user.hmc.ttl", []byte("2"), 0)) // as a subscriber sets it
	by.Kill()
	_, _ = io.Copy(io.Discard, out)
	if err = cmd.Wait(); err == nil {
		t.Error("it has received what did not come")
	}
	by.restart()
	kit.Eventually(t, patience, func() error { return owner.reaches(by.name) })
	kit.Eventually(t, patience, func() error { return by.reaches(owner.name) })
	offered(t, owner, by, "k", 51, bigSize)
	kit.Eventually(t, patience, func() error { return errors.Join(empty(owner), empty(by)) })
}

// A subscriber waits for keys that another one reserves as long as requested, for all of them
// concurrently, and reports them; when a key is returned, it is delivered.
func TestManyReserved(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2, here: true})
	owner := nodes[0]
	const count, size = 30, 3000
	holder, err := client.OpenSession(t.Context(), owner.Client().Socket())
	must(t, err)
	var keys []string
	for i := range count {
		key := fmt.Sprint("k", i)
		keys = append(keys, key)
		owner.offer(t, key, uint64(60+i), size)
		_, err = holder.DevClaim(t.Context(), key, hetero.ClaimOptions{})
		must(t, err)
	}
	for _, by := range nodes {
		for _, dir := range []string{t.TempDir(), by.Path("sim0")} {
			cmd := by.subscribe(append([]string{"--timeout", "1s", "--dir", dir}, keys...)...)
			var out []byte
			failed := soon(t, "subscribe", func() (err error) {
				out, err = cmd.CombinedOutput()
				return err
			})
			if told := strings.Count(string(out), "another subscriber is receiving it"); failed == nil || told != count {
				t.Errorf("%s, into %s: %v, told of %d keys: %s", by.name, dir, failed, told, out)
			}
		}
	}
	into := t.TempDir()
	cmd := nodes[1].subscribe(append([]string{"--dir", into}, keys...)...)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	must(t, holder.Close())
	words, _ := io.ReadAll(stderr)
	if err = cmd.Wait(); err != nil {
		t.Fatalf("%v %s", err, words)
	}
	for i, key := range keys {
		verify(t, filepath.Join(into, key), uint64(60+i), size)
	}
	must(t, empty(owner))
}
