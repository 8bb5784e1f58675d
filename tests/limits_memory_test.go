package tests

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

const (
	// memoryBound bounds the daemon's memory besides the bytes of files, with one user at each
	// limit. Its maps of files on a disk do not count: the kernel can reclaim their pages.
	memoryBound = 256 << 20
	// greedyNames is the test's limit of names.
	greedyNames = 100_000
	// Memory is registered in this number of pieces, of this number of bytes each.
	memoryPieces, memoryPiece = 64, 4096
)

// TestMemoryAtLimits lets one user reach each limit, and stay there.
func TestMemoryAtLimits(t *testing.T) {
	kit.Check(t)
	if !kit.Exhaustive() {
		t.Skip("takes minutes")
	}
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Extra: []string{"--limit", fmt.Sprint("user-names=", greedyNames)}})
	g := &greedy{t: t, m: m, dir: openDir(t, m.Path("sim0")), socket: socketOf(m), owner: newMemOwner(t, alice, 1, memoryPieces*memoryPiece)}
	most := ownMost(t, m.PID())
	most()
	for _, step := range []struct {
		name string
		do   func()
	}{{"watches", g.watches}, {"sessions", g.open}, {"descriptors", g.descriptors}, {"names", g.names}, {"attributes", g.attributes}, {"calls", g.calls}} {
		mnt.AsUser(t, userAlice(), step.do)
		var data int64
		for _, d := range m.Status().Devices {
			data += int64(d.Used)
		}
		had := most()
		t.Logf("%-12s %d MiB at most, %d MiB of data", step.name, had>>20, data>>20)
		if had > memoryBound+data {
			t.Errorf("%s: the daemon had %d MiB, with %d MiB of data; at most %d MiB besides", step.name, had>>20, data>>20, memoryBound>>20)
		}
	}
	text, err := m.Client().Metrics(t.Context())
	must(t, err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "hmcfs_limit_refusals_total") || strings.HasPrefix(line, "go_memstats_heap") {
			t.Log(strings.TrimSpace(line))
		}
	}
	g.close()
}

// ownBytes returns the memory of a process, except pages of files on a disk.
func ownBytes(t *testing.T, pid int) int64 {
	t.Helper()
	return statusBytes(t, pid, "RssAnon") + statusBytes(t, pid, "RssShmem")
}

// ownMost watches a process until the end of the test. most returns the maximum of ownBytes
// since its last call.
func ownMost(t *testing.T, pid int) (most func() int64) {
	t.Helper()
	var high atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-end:
				tick.Stop()
				return
			case <-tick.C:
				if n := ownBytes(t, pid); n > high.Load() {
					high.Store(n)
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	return func() int64 { return max(high.Swap(0), ownBytes(t, pid)) }
}

// statusBytes returns a figure in kB of /proc/PID/status.
func statusBytes(t *testing.T, pid int, name string) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) == 3 && words[0] == name+":" {
			n, err := strconv.ParseInt(words[1], 10, 64)
			must(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return 0
}

// greedy is a user that uses up every limit. Its methods run on a thread with the user's
// identity.
type greedy struct {
	t           *testing.T
	m           *mnt.M
	dir, socket string
	owner       *memOwner
	heard       []*client.Watch
	sessions    []*client.Session
}

// until repeats an operation until it fails, which it must do with one of several errors.
func (g *greedy) until(once func(i int) error, want ...error) (n int) {
	for {
		err := once(n)
		if err == nil {
			n++
			continue
		}
		for _, w := range want {
			if errors.Is(err, w) {
				return n
			}
		}
		g.t.Errorf("the %dth: %v", n, err)
		return n
	}
}

func (g *greedy) watches() {
	n := g.until(func(int) error {
		w, err := client.New(g.socket).Watch(g.t.Context())
		if err == nil {
			g.heard = append(g.heard, w)
		}
		return err
	}, hetero.ErrBusy)
	g.t.Log(n, "watches, of which nobody reads")
}

func (g *greedy) open() {
	n := g.until(func(int) error {
		s, err := client.OpenSession(g.t.Context(), g.socket)
		if err == nil {
			g.sessions = append(g.sessions, s)
		}
		return err
	}, hetero.ErrBusy)
	g.t.Log(n, "sessions")
}

// descriptors registers memory of a process of the user, in many pieces.
func (g *greedy) descriptors() {
	if len(g.sessions) == 0 {
		return
	}
	memory := hetero.Memory{Device: "sim0", Share: &share.Memory{Family: "sim", PID: g.owner.pid(), Size: memoryPieces * memoryPiece}}
	for i := range memoryPieces {
		memory.Files = append(memory.Files, g.owner.file)
		memory.Share.Pieces = append(memory.Share.Pieces, share.Piece{
			Kind: devices.HandleMemfd, FD: &i, Offset: devices.Offset(i * memoryPiece), Size: memoryPiece,
		})
	}
	n := g.until(func(i int) error {
		_, err := g.sessions[i%len(g.sessions)].PreRegister(g.t.Context(), memory)
		return err
	}, hetero.ErrNoMemory)
	g.t.Log(n*memoryPieces, "descriptors")
}

// file returns the path of the i-th file.
func (g *greedy) file(i int) string {
	return filepath.Join(g.dir, fmt.Sprint("d", i/1000), fmt.Sprint("f", i))
}

func (g *greedy) names() {
	n := g.until(func(i int) error {
		if i%1000 == 0 {
			if err := os.Mkdir(filepath.Dir(g.file(i)), 0o700); err != nil {
				return err
			}
		}
		return unix.Mknod(g.file(i), unix.S_IFREG|0o600, 0)
	}, unix.EDQUOT)
	g.t.Log(n, "files")
}

func (g *greedy) attributes() {
	n := g.until(func(i int) error {
		n := 64 << 10
		if i%4 == 3 {
			n -= 100 // room for the names
		}
		return unix.Setxattr(g.file(i/4), fmt.Sprint("user.a", i%4), kit.Bytes(uint64(i), 0, n), 0)
	}, unix.EDQUOT)
	g.t.Log(n, "attributes")
}

// calls lets each session wait for the maximum number of keys of a call, none of which exists.
func (g *greedy) calls() {
	keys := make([]string, hetero.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%0*d", hetero.MaxKeyLen, i)
	}
	var all sync.WaitGroup
	for _, s := range g.sessions {
		all.Go(func() {
			mnt.AsUser(g.t, userAlice(), func() {
				_, err := s.Wait(g.t.Context(), keys, false, 10*time.Second)
				if err != nil && !errors.Is(err, hetero.ErrBusy) && !errors.Is(err, hetero.ErrTimeout) && !errors.Is(err, hetero.ErrNotFound) {
					g.t.Error(err)
				}
			})
		})
	}
	all.Wait()
}

func (g *greedy) close() {
	for _, s := range g.sessions {
		must(g.t, s.Close())
	}
	for _, w := range g.heard {
		must(g.t, w.Close())
	}
}
