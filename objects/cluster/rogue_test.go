package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// regularOf returns the attributes of a file of a rogue.
func regularOf(ino, size uint64) proto.Attr {
	return proto.Attr{
		Ino: ino, Gen: 1, Mode: uint32(metadata.TypeRegular | 0o644), Nlink: 1, Size: size, Allocated: size,
		Device: "sim0", State: "live",
	}
}

// withholding is a rogue whose files have size bytes: it puts content for a read until it is
// told to withhold it, and from then on gives the same answers without it.
type withholding struct {
	*rogue
	size     uint64
	content  []byte
	withhold atomic.Bool
}

func newWithholding(t *testing.T, w *clustertest.World, o clustertest.Options, content []byte) *withholding {
	t.Helper()
	r := &withholding{size: uint64(len(content)), content: content}
	listen := control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
	if o.Unix {
		dir, err := os.MkdirTemp("", "hc") //nolint:usetesting // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		listen = control.Address{Network: control.Unix, Addr: filepath.Join(dir, "s")}
	}
	r.rogue = newRogueAt(t, w, listen, map[rpc.Method]rpc.Handler{
		proto.MethodOpen: func(_ context.Context, _ rpc.Caller, body []byte) ([]byte, error) {
			var in proto.OpenAsk
			if err := proto.Decode(body, &in); err != nil {
				return nil, err
			}
			return proto.Encode(&proto.OpenAnswer{Handle: in.Ino, Attr: regularOf(in.Ino, r.size)})
		},
		proto.MethodAttr: func(_ context.Context, _ rpc.Caller, body []byte) ([]byte, error) {
			var in proto.InoAsk
			if err := proto.Decode(body, &in); err != nil {
				return nil, err
			}
			a := regularOf(in.Ino, r.size)
			return proto.Encode(&a)
		},
		proto.MethodRead: r.read,
	})
	return r
}

func (r *withholding) read(ctx context.Context, from rpc.Caller, body []byte) ([]byte, error) {
	var in proto.MoveAsk
	if err := proto.Decode(body, &in); err != nil {
		return nil, err
	}
	if !r.withhold.Load() {
		d, err := in.Descriptor()
		if err != nil {
			return nil, err
		}
		b, err := r.comm.Table().Register(bytes.Clone(r.content[in.Off : in.Off+in.N]))
		if err != nil {
			return nil, err
		}
		err = r.comm.Put(ctx, from.Rank, comm.Op{Local: b, Remote: d, RemoteOff: in.MemOff, Size: devices.Size(in.N)})
		if failure := b.Close(ctx); err == nil {
			err = failure
		}
		if err != nil {
			return nil, err
		}
	}
	return proto.Encode(&proto.MoveAnswer{N: in.N, Off: in.Off, Size: r.size, Path: "tcp"})
}

// TestWithheld reads files of a node that answers for bytes that it does not put. The result
// has been written for this answer, or is zeros: it contains no bytes of another file of that
// node that was read before, nor of a local file that was in the memory.
func TestWithheld(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		for _, size := range []int{10, 100_000, 1 << 20, 3 << 20} {
			t.Run(fmt.Sprint(size), func(t *testing.T) { testWithheld(t, o, size) })
		}
	})
}

// testWithheld is TestWithheld for files of one size.
func testWithheld(t *testing.T, o clustertest.Options, size int) {
	t.Helper()
	kit.Check(t)
	w := clustertest.New(t, o)
	a := w.Node("a")
	r := newWithholding(t, w, o, kit.Bytes(7, 0, size))
	first, second := open(t, w.Peer("a", "b"), 2000), open(t, w.Peer("a", "b"), 2001)
	if got := read(t, first, size); !bytes.Equal(got, r.content) {
		t.Fatalf("of an honest answer: differ at %d", kit.FirstDiff(got, r.content))
	}
	a.File("sim0", "first", copied(t, a, first, size))
	// The memory of a local file is freed.
	a.File("sim0", "gone", kit.Bytes(8, 0, 2*size))
	for _, name := range []string{"gone", "first"} {
		if err := a.Store.Unlink(t.Context(), a.Dir("sim0"), name); err != nil {
			t.Fatal(err)
		}
	}
	r.withhold.Store(true)
	zeros := make([]byte, size)
	if got := read(t, second, size); !bytes.Equal(got, zeros[:len(got)]) {
		t.Errorf("read: bytes of another file from %d on", kit.FirstDiff(got, zeros))
	}
	for _, device := range []string{"sim0", "host"} {
		if got := copiedTo(t, a, device, second, size); !bytes.Equal(got, zeros[:len(got)]) {
			t.Errorf("copied to %s: bytes of another file from %d on", device, kit.FirstDiff(got, zeros))
		}
	}
}

// copied returns the content of a file of another node, by copying it to a local file, which
// is removed again.
func copied(t *testing.T, at *clustertest.Node, f *cluster.File, n int) []byte {
	t.Helper()
	return copiedTo(t, at, "sim0", f, n)
}

func copiedTo(t *testing.T, at *clustertest.Node, device string, f *cluster.File, n int) []byte {
	t.Helper()
	ino := at.File(device, "copy", nil)
	to, err := at.Store.OpenFile(t.Context(), ino)
	if err != nil {
		t.Fatal(err)
	}
	k, err := at.Cluster.Copy(t.Context(), cluster.End{Local: to}, cluster.End{Remote: f}, uint64(n))
	if err != nil || k != uint64(n) {
		t.Errorf("copied %d of %d bytes to %s: %v", k, n, device, err)
	}
	if err = to.Close(t.Context()); err != nil {
		t.Error(err)
	}
	got := at.Content(ino)
	if err = at.Store.Unlink(t.Context(), at.Dir(device), "copy"); err != nil {
		t.Error(err)
	}
	return got
}
