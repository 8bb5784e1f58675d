package collective

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// rankDir makes a process of the tests a rank: it is the directory in which the ranks
// publish their addresses. rankName is its number, and rankStreams is set for sockets.
const rankDir, rankName, rankStreams = "HMCFS_TEST_DIR", "HMCFS_TEST_NAME", "HMCFS_TEST_STREAMS"

// processes is the number of them.
const processes = 3

func TestMain(m *testing.M) {
	if dir := os.Getenv(rankDir); dir != "" {
		if err := beRank(dir, os.Getenv(rankName), os.Getenv(rankStreams) != ""); err != nil {
			_, _ = fmt.Fprintln(os.Stdout, "over:", err)
		}
		os.Exit(0)
	}
	spread.Main(m)
}

// beRank reduces in an endless loop, and reports when it has started.
func beRank(dir, name string, streams bool) error {
	me, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		return err
	}
	c, err := comm.New(comm.Options{Rank: wire.Rank(me), Secret: kit.Bytes(1, 0, 32), Engine: engine})
	if err != nil {
		return err
	}
	at := control.Address{Network: control.Unix, Addr: filepath.Join(dir, "s"+name)}
	if streams {
		at = control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
	}
	if at, err = c.Listen(ctx, at); err != nil {
		return err
	}
	book, err := rendezvous(ctx, dir, name, at)
	if err != nil {
		return err
	}
	domains, err := domain.New(c, domain.Options{AddressBook: book})
	if err != nil {
		return err
	}
	list := make([]wire.Rank, processes)
	for i := range list {
		list[i] = wire.Rank(i)
	}
	d, err := domains.NewComm(ctx, "job", list)
	if err != nil {
		return err
	}
	f, err := fabric.Over(ctx, d, fabric.Options{Streams: streams})
	if err != nil {
		return err
	}
	g, err := New(ctx, f, Options{})
	if err != nil {
		return err
	}
	b, err := c.Table().Alloc(4 << 20)
	if err != nil {
		return err
	}
	v, err := domain.All(b, elem.Float32)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := g.AllReduce(ctx, v, v, elem.Max); err != nil {
			return err
		}
		if i == 3 {
			_, _ = fmt.Fprintln(os.Stdout, "ready")
		}
	}
}

// rendezvous publishes our address, and waits for those of all ranks.
func rendezvous(ctx context.Context, dir, name string, at control.Address) (map[wire.Rank]control.Address, error) {
	half := filepath.Join(dir, "half"+name)
	if err := os.WriteFile(half, []byte(string(at.Network)+" "+at.Addr), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(half, filepath.Join(dir, "at"+name)); err != nil {
		return nil, err
	}
	book := map[wire.Rank]control.Address{}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(book) < processes {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		for r := range processes {
			text, err := os.ReadFile(filepath.Join(dir, "at"+strconv.Itoa(r)))
			if err != nil {
				continue
			}
			network, addr, _ := strings.Cut(string(text), " ")
			book[wire.Rank(r)] = control.Address{Network: control.Network(network), Addr: addr}
		}
	}
	return book, nil
}

// TestProcessKilled kills a process during a reduction: the others end with an error that
// names it.
func TestProcessKilled(t *testing.T) {
	for _, streams := range []string{"", "1"} {
		t.Run("streams="+streams, func(t *testing.T) {
			kit.Check(t)
			dir := t.TempDir()
			all, outs := startRanks(t, dir, streams)
			if err := all[1].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for r, cmd := range all {
				outs[r].Scan()
				said := outs[r].Text()
				if err := cmd.Wait(); r != 1 && (err != nil || !strings.Contains(said, "ranks [1] are missing")) {
					t.Errorf("rank %d says %q, %v", r, said, err)
				}
			}
		})
	}
}

// startRanks starts all processes, and returns when they reduce.
func startRanks(t *testing.T, dir, streams string) (all []*exec.Cmd, outs []*bufio.Scanner) {
	t.Helper()
	for r := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), rankDir+"="+dir, rankName+"="+strconv.Itoa(r), rankStreams+"="+streams)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, outs = append(all, cmd), append(outs, bufio.NewScanner(out))
	}
	for r, out := range outs {
		if !out.Scan() || out.Text() != "ready" {
			t.Fatalf("rank %d says %q", r, out.Text())
		}
	}
	return all, outs
}

// proxy is a connection between two ranks that can be cut.
type proxy struct {
	to string

	mu sync.Mutex
	// +checklocks:mu
	conns []net.Conn
	// left is the number of bytes that may pass before the connection is cut; negative
	// means no limit.
	// +checklocks:mu
	left int64
}

// serve accepts connections until the listener is closed.
func (p *proxy) serve(l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		go p.pass(in, out)
		go p.pass(out, in)
	}
}

// pass copies one direction.
func (p *proxy) pass(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.may(int64(n)) {
			p.cut()
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			_ = to.Close()
			return
		}
	}
}

// may reports whether bytes may pass.
func (p *proxy) may(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < 0 {
		return true
	}
	p.left = max(p.left-n, -1)
	return p.left >= 0
}

// cut closes all connections. New ones work.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns, p.left = nil, -1
}

// cutAfter cuts after so many bytes have passed.
func (p *proxy) cutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// TestConnectionDropped drops the connections of two ranks during a reduction: it is
// repeated, and gives the same bits.
func TestConnectionDropped(t *testing.T) {
	kit.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{left: -1}
	join := overDomainBy(t, 2, fabric.Options{Streams: true}, func(r wire.Rank, at control.Address) control.Address {
		if r != 0 {
			return at
		}
		p.to = at.Addr
		return control.Address{Network: control.TCP, Addr: l.Addr().String()}
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.serve(l)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
		p.cut()
	})
	joined, err := join()
	if err != nil {
		t.Fatal(err)
	}
	reports := make([]Report, 2)
	w := groupsOf(t, joined, Options{Algorithm: plan.Ring})
	for r, g := range w.groups {
		g.opts.Observe = func(rep *Report) { reports[r] = *rep }
	}
	const count = 8 << 20
	want := allReduce(t, w, count)
	for _, after := range []int64{1, 1 << 20, 20 << 20} {
		p.cutAfter(after)
		if got := allReduce(t, w, count); string(got) != string(want) {
			t.Errorf("cut after %d bytes: other bits", after)
		}
		if reports[0].Retries != 1 || reports[1].Retries != 1 {
			t.Errorf("cut after %d bytes: tried again %d and %d times", after, reports[0].Retries, reports[1].Retries)
		}
	}
}
