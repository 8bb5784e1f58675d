package cluster_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// TestStrangeNumbers sends all requests that contain numbers, with numbers that no honest node
// uses: each request is answered, none allocates memory, and the file is unchanged.
func TestStrangeNumbers(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	r := newRogue(t, w, nil)
	r.visits(a)
	b, memory := r.lend()
	for _, device := range []string{"sim0", "host"} {
		ino := a.File(device, "f", []byte("some bytes"))
		var file proto.OpenAnswer
		if err := r.asks(a, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(ino), Access: 3}, &file); err != nil {
			t.Fatal(err)
		}
		before := used(t, a, device)
		f := heldFile{rogue: r, a: a, device: device, ino: ino, handle: file.Handle, memory: memory}
		f.strangeNumbers()
		r.strangeHandles(a, file.Handle, memory)
		if now := used(t, a, device); now != before {
			t.Errorf("%s: %v are in use for it, %v before", device, now, before)
		}
		if got := string(a.Content(ino)); got != "some bytes" {
			t.Errorf("%s: the file is %q", device, got)
		}
		if err := r.asks(a, proto.MethodClose, &proto.HandleAsk{Handle: file.Handle}, nil); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// heldFile is a file of node a that a rogue has open.
type heldFile struct {
	*rogue
	a      *clustertest.Node
	device string
	ino    objects.Ino
	handle uint64
	// memory describes the memory that the rogue exposes for moves.
	memory []byte
}

// strangeNumbers sends requests with every pair of a strange offset and a length.
func (f *heldFile) strangeNumbers() {
	f.t.Helper()
	for _, off := range []uint64{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 9, math.MaxUint64} {
		for _, n := range []uint64{1, 10, 4096} {
			f.checkRefused(off, n)
			f.checkNothingMoves(off, n)
		}
		var page proto.ReadDirAnswer
		err := f.asks(f.a, proto.MethodReadDir, &proto.ReadDirAsk{Dir: uint64(f.a.Dir(f.device)), Cookie: off, Limit: math.MaxUint32}, &page)
		if err == nil && len(page.Entries) > 0 {
			f.t.Errorf("%s: entries behind %d", f.device, off)
		}
	}
}

// checkRefused sends requests that have no valid meaning with an offset and a length, and
// expects an error that the node has a code for.
func (f *heldFile) checkRefused(off, n uint64) {
	f.t.Helper()
	answers := map[string]error{
		"write":     f.asks(f.a, proto.MethodWrite, &proto.MoveAsk{Handle: f.handle, Off: off, N: n, Memory: f.memory}, nil),
		"allocate":  f.asks(f.a, proto.MethodAllocate, &proto.AllocateAsk{Handle: f.handle, Off: off, N: n}, nil),
		"much":      f.asks(f.a, proto.MethodAllocate, &proto.AllocateAsk{Handle: f.handle, Mode: uint32(objects.AllocateKeepSize), Off: n, N: off}, nil),
		"copy from": f.asks(f.a, proto.MethodCopy, &proto.CopyAsk{Dst: f.handle, DstOff: off, Src: f.handle, N: n}, nil),
		"sums":      f.asks(f.a, proto.MethodSums, &proto.SumsAsk{Handle: f.handle, Block: n, From: off, N: 1}, nil),
		"blocks":    f.asks(f.a, proto.MethodSums, &proto.SumsAsk{Handle: f.handle, Block: off, N: 1}, nil),
	}
	if off > math.MaxInt64 {
		answers["size"] = f.asks(f.a, proto.MethodSetAttr, &proto.SetAttrAsk{Ino: uint64(f.ino), Set: proto.SetSize, Size: off}, nil)
	}
	for name, err := range answers {
		if failed, ok := errors.AsType[*rpc.Error](err); !ok || failed.Code == rpc.CodeUnknown {
			f.t.Errorf("%s, %d at %d: %s: %v", f.device, n, off, name, err)
		}
	}
}

// checkNothingMoves requests bytes and data at an offset beyond the file's end, where there
// are none.
func (f *heldFile) checkNothingMoves(off, n uint64) {
	f.t.Helper()
	what := fmt.Sprintf("%s, %d at %d", f.device, n, off)
	var moved proto.MoveAnswer
	if err := f.asks(f.a, proto.MethodRead, &proto.MoveAsk{Handle: f.handle, Off: off, N: n, Memory: f.memory}, &moved); err == nil && moved.N != 0 {
		f.t.Errorf("%s: %d bytes are read", what, moved.N)
	}
	if err := f.asks(f.a, proto.MethodCopy, &proto.CopyAsk{Dst: f.handle, Src: f.handle, SrcOff: off, N: n}, &moved); err == nil && moved.N != 0 {
		f.t.Errorf("%s: %d bytes are copied", what, moved.N)
	}
	var found proto.SeekAnswer
	if err := f.asks(f.a, proto.MethodSeek, &proto.SeekAsk{Handle: f.handle, Off: off}, &found); err == nil {
		f.t.Errorf("%s: data at %d", what, found.Off)
	}
}

// strangeHandles uses handles that the session does not have.
func (r *rogue) strangeHandles(a *clustertest.Node, known uint64, memory []byte) {
	r.t.Helper()
	for _, handle := range []uint64{0, known + 1, known - 1, math.MaxUint64} {
		for name, err := range map[string]error{
			"close": r.asks(a, proto.MethodClose, &proto.HandleAsk{Handle: handle}, nil),
			"read":  r.asks(a, proto.MethodRead, &proto.MoveAsk{Handle: handle, N: 1, Memory: memory}, nil),
			"copy":  r.asks(a, proto.MethodCopy, &proto.CopyAsk{Dst: known, Src: handle, N: 1}, nil),
			"pull":  r.asks(a, proto.MethodPull, &proto.PullAsk{Handle: handle, Node: "b", Ino: 2000, N: 1}, nil),
		} {
			if failed, ok := errors.AsType[*rpc.Error](err); !ok || failed.Code != proto.CodeStale {
				r.t.Errorf("%s of handle %#x: %v", name, handle, err)
			}
		}
	}
}
