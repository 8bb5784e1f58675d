package ucx

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// peerEnv makes this test binary a peer: its value is a peerPlan.
const peerEnv = "HMCFS_UCX_TEST_PEER"

func TestMain(m *testing.M) {
	plan := os.Getenv(peerEnv)
	if plan == "" {
		spread.Main(m)
	}
	if err := servePeer(plan, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// peerPlan configures a peer at its start.
type peerPlan struct {
	Options Options
	// Size is the size of its buffer, in bytes; Own makes the library allocate
	// it.
	Size int
	Own  bool
}

// peerTold is a message from either process to the other: the peer starts.
type peerTold struct {
	Address, Offer []byte `json:",omitempty"`
	// Fill or check the peer's buffer.
	Fill, Check bool   `json:",omitempty"`
	Off, N, At  int    `json:",omitempty"`
	Seed        uint64 `json:",omitempty"`
	Wrong       int
	Garbage     []byte `json:",omitempty"`
	// Storm is an offer: the peer performs operations of a kind on it, of N
	// bytes, endlessly.
	Storm []byte    `json:",omitempty"`
	Kind  wire.Kind `json:",omitempty"`
	Err   string    `json:",omitempty"`
}

// servePeer runs the other process. It ends with its input.
func servePeer(plan string, in io.Reader, out io.Writer) error {
	var pp peerPlan
	if err := json.Unmarshal([]byte(plan), &pp); err != nil {
		return err
	}
	engine, err := transport.New(transport.Options{})
	if err != nil {
		return err
	}
	pp.Options.Engine = engine
	ctx, err := (&Library{}).Open(pp.Options)
	if err != nil {
		return err
	}
	p, err := ctx.NewProvider(0)
	if err != nil {
		return err
	}
	mem := make([]byte, pp.Size)
	if pp.Own {
		if mem, _, err = ctx.alloc(pp.Size); err != nil {
			return err
		}
	}
	b, err := region.NewTable(engine).Register(mem)
	if err != nil {
		return err
	}
	e, err := p.Export(b, wire.Readable|wire.Writable)
	if err != nil {
		return err
	}
	answer := json.NewEncoder(out)
	if err := answer.Encode(peerTold{Address: p.Address(), Offer: e.Offer().Blob}); err != nil {
		return err
	}
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var told peerTold
		if lines.Decode(&told) != nil {
			p.Close()
			return e.Close()
		}
		if err := answer.Encode(told.serve(p, b, mem)); err != nil {
			return err
		}
	}
}

// serve performs the peer's instructions.
func (m peerTold) serve(p *Provider, b *region.Buffer, mem []byte) peerTold {
	var err error
	a := peerTold{Wrong: -1}
	switch {
	case m.Address != nil:
		err = p.Connect(m.Address)
	case m.Garbage != nil:
		_, err = p.Import(window.Offer{Blob: m.Garbage}, devices.Size(m.N), wire.Readable)
	case m.Storm != nil:
		err = m.storm(p, b)
	case m.Fill:
		kit.FillAt(mem[m.Off:m.Off+m.N], m.Seed, int64(m.At))
	case m.Check:
		a.Wrong = kit.DiffAt(mem[m.Off:m.Off+m.N], m.Seed, int64(m.At))
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// storm returns when the first operations are complete; the others continue.
func (m peerTold) storm(p *Provider, b *region.Buffer) error {
	w, err := p.Import(window.Offer{Blob: m.Storm}, b.Size(), wire.Readable|wire.Writable)
	if err != nil {
		return err
	}
	done := make(result, 32)
	op := &window.Op{Kind: m.Kind, Local: b, Size: devices.Size(m.N)}
	for range cap(done) {
		w.Start(op, done)
	}
	if err := <-done; err != nil {
		return err
	}
	go func() {
		for {
			w.Start(op, done)
			if <-done != nil {
				return
			}
		}
	}()
	return nil
}

// peer is another process with a provider and one buffer.
type peer struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	hail peerTold
	// kill ends it as kill -9 does, and returns when it has ended.
	kill func()
}

// newPeer starts one. It ends with the test.
func newPeer(t testing.TB, plan peerPlan) *peer {
	t.Helper()
	kit.Require(t, "ucx")
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), peerEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.kill = sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it was killed
		_ = p.in.Close()
	})
	t.Cleanup(p.kill)
	p.out = json.NewDecoder(out)
	if err := p.out.Decode(&p.hail); err != nil {
		t.Fatalf("the peer did not start: %v", err)
	}
	return p
}

// tell makes the peer do something.
func (p *peer) tell(m peerTold) peerTold {
	p.t.Helper()
	var a peerTold
	if err := json.NewEncoder(p.in).Encode(m); err != nil {
		p.t.Fatal(err)
	}
	if err := p.out.Decode(&a); err != nil {
		p.t.Fatal(err)
	}
	return a
}

// check verifies bytes in the peer's buffer.
func (p *peer) check(off, n int, seed uint64, at int) {
	p.t.Helper()
	if a := p.tell(peerTold{Check: true, Off: off, N: n, Seed: seed, At: at}); a.Wrong >= 0 {
		p.t.Fatalf("byte %d of the peer's %d from %d is wrong", a.Wrong, n, off)
	}
}

// meet returns a side in this process, connected to a peer, and the window to its
// buffer.
func meet(t testing.TB, plan peerPlan) (*side, *peer, window.Window) {
	t.Helper()
	p := newPeer(t, plan)
	s := newSide(t, &Library{}, plan.Options)
	if err := s.Connect(p.hail.Address); err != nil {
		t.Fatal(err)
	}
	if a := p.tell(peerTold{Address: s.Address()}); a.Err != "" {
		t.Fatal(a.Err)
	}
	w, err := s.Import(window.Offer{Blob: p.hail.Offer}, devices.Size(plan.Size), wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, p, w
}
