package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// rogue is a node "b" that knows the secret and answers as a test wants.
type rogue struct {
	t    *testing.T
	comm *comm.Communicator
	ep   *rpc.Endpoint
	name members.Name
}

// newRogue replaces b in a world. It only knows the methods that it is given, MethodHello and
// MethodOpen.
func newRogue(t *testing.T, w *clustertest.World, at map[rpc.Method]rpc.Handler) *rogue {
	t.Helper()
	return newRogueAt(t, w, control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}, at)
}

// lend exposes memory of 4096 bytes to node a, and returns its description.
func (r *rogue) lend() (b *region.Buffer, memory []byte) {
	r.t.Helper()
	b, err := r.comm.Table().Alloc(4096)
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := r.comm.Share(r.t.Context(), rankOf("a"), b, wire.Readable|wire.Writable)
	if err != nil {
		r.t.Fatal(err)
	}
	return b, d.Append(nil)
}

// newRogueAt is newRogue that listens at an address: with a socket of this machine the two
// share memory.
func newRogueAt(t *testing.T, w *clustertest.World, listen control.Address, at map[rpc.Method]rpc.Handler) *rogue {
	t.Helper()
	w.Node("b").Leave()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{t: t, name: "b"}
	r.comm, err = comm.New(comm.Options{
		Rank: wire.Rank(members.Name("b").Rank()), Secret: clustertest.Secret(), Engine: engine, Timeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[rpc.Method]rpc.Handler{
		proto.MethodHello: r.hello,
		proto.MethodOpen: answer(&proto.OpenAnswer{Handle: 7, Attr: proto.Attr{
			Ino: 2000, Mode: uint32(metadata.TypeRegular | 0o644), Size: 100, State: "live",
		}}),
		proto.MethodClose: answer(&proto.Attr{Ino: 2000, Mode: uint32(metadata.TypeRegular | 0o644), State: "live"}),
	}
	maps.Copy(all, at)
	ep, err := rpc.New(rpc.Options{Comm: r.comm, Handlers: all, Lanes: cluster.Lanes(), Coder: codeOf})
	if err != nil {
		t.Fatal(err)
	}
	r.ep = ep
	where, err := r.comm.Listen(t.Context(), listen)
	if err != nil {
		t.Fatal(err)
	}
	w.Node("a").View.Set("b", where.String())
	t.Cleanup(func() {
		if err := errors.Join(ep.Close(), r.comm.Close(), engine.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// answer returns a handler that always gives the same answer.
func answer(v any) rpc.Handler {
	return func(context.Context, rpc.Caller, []byte) ([]byte, error) { return proto.Encode(v) }
}

func (r *rogue) hello(context.Context, rpc.Caller, []byte) ([]byte, error) {
	self, err := json.Marshal(members.Record{Name: r.name, Epoch: members.Epoch(time.Now().UnixMilli() + 1000)})
	if err != nil {
		return nil, err
	}
	return proto.Encode(&proto.Welcome{Version: proto.Version, Record: self})
}

// TestNonsense receives invalid answers, and accepts none of them.
func TestNonsense(t *testing.T) {
	attr := proto.Attr{Ino: 5, Mode: uint32(metadata.TypeRegular | 0o644), State: "live"}
	for name, c := range map[string]struct {
		method rpc.Method
		says   any
	}{
		"an inode without a number": {proto.MethodLookup, &proto.Attr{State: "live", Mode: attr.Mode}},
		"an inode of no type":       {proto.MethodLookup, &proto.Attr{Ino: 5, State: "live"}},
		"another body":              {proto.MethodLookup, &proto.SeekAnswer{}},
		"a page out of order": {proto.MethodReadDir, &proto.ReadDirAnswer{End: true, Entries: []proto.Entry{
			{Name: "x", Ino: 5, Type: uint32(metadata.TypeRegular), Cookie: 9},
			{Name: "y", Ino: 6, Type: uint32(metadata.TypeRegular), Cookie: 8},
		}}},
		"an empty page":        {proto.MethodReadDir, &proto.ReadDirAnswer{}},
		"more than was wanted": {proto.MethodRead, &proto.MoveAnswer{N: 1 << 40}},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			w := clustertest.New(t, clustertest.Options{})
			newRogue(t, w, map[rpc.Method]rpc.Handler{c.method: answer(c.says)})
			b := w.Peer("a", "b")
			var err error
			switch c.method {
			case proto.MethodLookup:
				_, err = b.Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "x")
			case proto.MethodReadDir:
				_, err = b.OpenDir(clustertest.Root(), metadata.RootIno).After(t.Context(), 0)
			default:
				_, err = open(t, b, 2000).Peek(t.Context(), make([]byte, 10), 0)
			}
			if !errors.Is(err, proto.ErrBody) {
				t.Errorf("taken: %v", err)
			}
		})
	}
}

// TestWrongName has a node that uses the name of another one.
func TestWrongName(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	newRogue(t, w, nil).name = "c"
	_, err := w.Peer("a", "b").Attr(t.Context(), clustertest.Root(), metadata.RootIno)
	if !errors.Is(err, cluster.ErrVersion) {
		t.Errorf("b that is c: %v", err)
	}
}

// TestLatePut has a node that answers no request, and puts bytes into our memory long after
// the request has ended: they are never read.
func TestLatePut(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.Timeout = time.Second
	}})
	asked := make(chan wire.Descriptor, 8)
	var from rpc.Caller
	r := newRogue(t, w, map[rpc.Method]rpc.Handler{
		proto.MethodRead: func(ctx context.Context, who rpc.Caller, body []byte) ([]byte, error) {
			var in proto.MoveAsk
			if err := proto.Decode(body, &in); err != nil {
				return nil, err
			}
			d, err := in.Descriptor()
			if err != nil {
				return nil, err
			}
			from = who
			asked <- d
			<-ctx.Done()
			return nil, ctx.Err()
		},
		proto.MethodWrite: func(ctx context.Context, _ rpc.Caller, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	f := open(t, w.Peer("a", "b"), 2000)
	p := make([]byte, 10)
	if _, err := f.Peek(t.Context(), p, 0); !errors.Is(err, cluster.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	d := <-asked
	bad, err := r.comm.Table().Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	// The memory is released after the answer that did not arrive.
	kit.Eventually(t, 10*time.Second, func() bool {
		err = r.comm.Put(t.Context(), from.Rank, comm.Op{Local: bad, Remote: d, Size: 10})
		return errors.Is(err, region.ErrKey)
	})
	if err = bad.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// A large move is abandoned as well, and the memory is the caller's again.
	big := make([]byte, 3<<20)
	if _, err = f.WriteAt(t.Context(), big, objects.Write{}); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("no answer: %v", err)
	}
	_, err = w.Node("a").Engine.Copy(t.Context(), f.Span(0, uint64(len(big))), transport.HostSpan(big))
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("no answer: %v", err)
	}
}
