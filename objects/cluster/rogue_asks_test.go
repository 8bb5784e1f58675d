package cluster_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/clustertest"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestStrangeNumbers asks for everything that has a number, with numbers that no
// honest node gives: each question has an answer, none takes memory, and the file
// is as it was.
func TestStrangeNumbers(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	r := newRogue(t, w, nil)
	r.visits(a)
	b, err := r.comm.Table().Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.comm.Share(t.Context(), rankOf("a"), b, wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	memory := d.Append(nil)
	for _, device := range []string{"sim0", "host"} {
		ino := a.File(device, "f", []byte("some bytes"))
		var file proto.OpenAnswer
		if err := r.asks(a, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(ino), Access: 3}, &file); err != nil {
			t.Fatal(err)
		}
		before := used(t, a, device)
		for _, off := range []uint64{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 9, math.MaxUint64} {
			for _, n := range []uint64{1, 10, 4096} {
				what := fmt.Sprintf("%s, %d at %d", device, n, off)
				refused := map[string]error{
					"write":     r.asks(a, proto.MethodWrite, &proto.MoveAsk{Handle: file.Handle, Off: off, N: n, Memory: memory}, nil),
					"allocate":  r.asks(a, proto.MethodAllocate, &proto.AllocateAsk{Handle: file.Handle, Off: off, N: n}, nil),
					"much":      r.asks(a, proto.MethodAllocate, &proto.AllocateAsk{Handle: file.Handle, Mode: uint32(objects.AllocateKeepSize), Off: n, N: off}, nil),
					"copy from": r.asks(a, proto.MethodCopy, &proto.CopyAsk{Dst: file.Handle, DstOff: off, Src: file.Handle, N: n}, nil),
					"sums":      r.asks(a, proto.MethodSums, &proto.SumsAsk{Handle: file.Handle, Block: n, From: off, N: 1}, nil),
					"blocks":    r.asks(a, proto.MethodSums, &proto.SumsAsk{Handle: file.Handle, Block: off, N: 1}, nil),
				}
				if off > math.MaxInt64 {
					refused["size"] = r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{Ino: uint64(ino), Set: proto.SetSize, Size: off}, nil)
				}
				for name, err := range refused {
					if failed, ok := errors.AsType[*rpc.Error](err); !ok || failed.Code == rpc.CodeUnknown {
						t.Errorf("%s: %s: %v", what, name, err)
					}
				}
				var moved proto.MoveAnswer
				if err := r.asks(a, proto.MethodRead, &proto.MoveAsk{Handle: file.Handle, Off: off, N: n, Memory: memory}, &moved); err == nil && moved.N != 0 {
					t.Errorf("%s: %d bytes are read", what, moved.N)
				}
				if err := r.asks(a, proto.MethodCopy, &proto.CopyAsk{Dst: file.Handle, Src: file.Handle, SrcOff: off, N: n}, &moved); err == nil && moved.N != 0 {
					t.Errorf("%s: %d bytes are copied", what, moved.N)
				}
				var found proto.SeekAnswer
				if err := r.asks(a, proto.MethodSeek, &proto.SeekAsk{Handle: file.Handle, Off: off}, &found); err == nil {
					t.Errorf("%s: data at %d", what, found.Off)
				}
			}
			var page proto.ReadDirAnswer
			if err := r.asks(a, proto.MethodReadDir, &proto.ReadDirAsk{Dir: uint64(a.Dir(device)), Cookie: off, Limit: math.MaxUint32}, &page); err == nil && len(page.Entries) > 0 {
				t.Errorf("%s: entries behind %d", device, off)
			}
		}
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
	if err = b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// strangeHandles asks by handles that the session does not have.
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
