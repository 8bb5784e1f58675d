package cluster_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// visits makes a rogue connect to a node and say hello.
func (r *rogue) visits(at *clustertest.Node) {
	r.t.Helper()
	where, err := control.ParseAddress(at.Cluster.Listening()[0])
	if err != nil {
		r.t.Fatal(err)
	}
	if err = r.comm.Connect(r.t.Context(), rankOf(at.Name), where); err != nil {
		r.t.Fatal(err)
	}
	self, err := json.Marshal(members.Record{Name: r.name, Epoch: members.Epoch(time.Now().UnixMilli() + 1000)})
	if err != nil {
		r.t.Fatal(err)
	}
	if err = r.asks(at, proto.MethodHello, &proto.Hello{Version: proto.Version, Cluster: "test", Record: self}, &proto.Welcome{}); err != nil {
		r.t.Fatal(err)
	}
}

func rankOf(name members.Name) wire.Rank { return wire.Rank(name.Rank()) }

// asks sends an arbitrary request to a node.
func (r *rogue) asks(at *clustertest.Node, m rpc.Method, in, out any) error {
	r.t.Helper()
	body, err := proto.Encode(in)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.ep.Call(r.t.Context(), rankOf(at.Name), m, body)
	if err != nil || out == nil {
		return err
	}
	return proto.Decode(answer, out)
}

// used returns the bytes of a node's device that are in use.
func used(t *testing.T, n *clustertest.Node, device string) devices.Size {
	t.Helper()
	all, err := n.Store.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if string(d.Info.Name) == device {
			return d.Usage.Used
		}
	}
	t.Fatalf("no device %s", device)
	return 0
}

// TestMoreThanIsLent requests moves of more bytes than the requester exposes, or from beyond
// them: no memory is allocated for them.
func TestMoreThanIsLent(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	r := newRogue(t, w, nil)
	r.visits(a)
	ino := a.File("sim0", "f", []byte("some bytes"))
	before := used(t, a, "sim0")
	var file proto.OpenAnswer
	if err := r.asks(a, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(ino), Access: 3}, &file); err != nil {
		t.Fatal(err)
	}
	b, memory := r.lend()
	for name, move := range map[string]proto.MoveAsk{
		"more":           {N: 32 << 20},
		"one byte more":  {N: 4097},
		"all":            {N: math.MaxInt64},
		"all of 64 bits": {N: math.MaxUint64},
		"from behind":    {N: 1, MemOff: 4096},
		"around":         {N: 2, MemOff: math.MaxUint64},
	} {
		move.Handle, move.Memory = file.Handle, memory
		for _, m := range []rpc.Method{proto.MethodWrite, proto.MethodRead} {
			var failed *rpc.Error
			if failure := r.asks(a, m, &move, &proto.MoveAnswer{}); !errors.As(failure, &failed) {
				t.Errorf("%s, method %d: %v", name, m, failure)
			}
		}
	}
	if now := used(t, a, "sim0"); now != before {
		t.Errorf("%v are in use for it, %v before", now, before)
	}
	if got := string(a.Content(ino)); got != "some bytes" {
		t.Errorf("the file is %q", got)
	}
	// A move within the exposed memory succeeds.
	var moved proto.MoveAnswer
	err := r.asks(a, proto.MethodRead, &proto.MoveAsk{Handle: file.Handle, N: 4096, Memory: memory}, &moved)
	if err != nil || moved.N != 10 {
		t.Errorf("%+v, %v", moved, err)
	}
	if err = b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPathOfAKey: the path that a node reports for a key's object becomes a symlink here, so
// it must not lead anywhere but into that node's tree.
func TestPathOfAKey(t *testing.T) {
	for _, path := range []string{"", "/etc/passwd", "../../../etc/passwd", "sim0/../../a", "sim0//x", "sim0/x\x00", "sim0/.", "sim0/"} {
		t.Run(path, func(t *testing.T) {
			kit.Check(t)
			w := clustertest.New(t, clustertest.Options{})
			newRogue(t, w, map[rpc.Method]rpc.Handler{
				proto.MethodHaveKeys: answer(&proto.HaveKeysAnswer{There: []bool{true}}),
				proto.MethodFindKey:  answer(&proto.KeyAnswer{Path: path}),
			})
			_, got, err := w.Node("a").Cluster.Key(t.Context(), "k")
			if !errors.Is(err, proto.ErrBody) {
				t.Errorf("the key is at %q: %v", got, err)
			}
		})
	}
}

// TestStrangeInodes sends all kinds of requests for inodes that the requester may not see or
// change.
func TestStrangeInodes(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.Squash = cluster.Squash{Mode: cluster.SquashRoot}
	}})
	a := w.Node("a")
	r := newRogue(t, w, nil)
	r.visits(a)
	roots := uint64(a.File("sim0", "f", []byte("bytes of root")))
	if _, err := a.Store.SetAttr(t.Context(), metadata.Ino(roots), objects.Change{Mode: new(metadata.Mode(0o600))}); err != nil {
		t.Fatal(err)
	}
	for name, who := range map[string]proto.Cred{
		"root": {}, "in root's group": {UID: 7, GID: 7, Groups: []uint32{0}}, "of root's group": {UID: 7},
		"nobody at all": {UID: math.MaxUint32, GID: math.MaxUint32, Groups: []uint32{math.MaxUint32}},
	} {
		mode := func(ino uint64, bits uint32) error {
			return r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{Cred: who, Ino: ino, Set: proto.SetMode, Mode: bits}, nil)
		}
		for what, err := range map[string]error{
			"mode of a file":   mode(roots, 0o6777),
			"mode of the root": mode(uint64(metadata.RootIno), 0o777),
			"mode of publish":  mode(uint64(metadata.PublishIno), 0o777),
			"owner": r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{
				Cred: who, Ino: roots, Set: proto.SetUID | proto.SetGID, UID: who.UID, GID: who.GID,
			}, nil),
			"size":         r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{Cred: who, Ino: roots, Set: proto.SetSize}, nil),
			"ctime":        r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{Cred: who, Ino: roots, Set: proto.SetCtime}, nil),
			"write":        r.asks(a, proto.MethodOpen, &proto.OpenAsk{Cred: who, Ino: roots, Access: 3}, nil),
			"key":          r.asks(a, proto.MethodSetXattr, &proto.XattrAsk{Cred: who, Ino: roots, Name: "user.hmc.key", Value: []byte("k")}, nil),
			"capabilities": r.asks(a, proto.MethodSetXattr, &proto.XattrAsk{Cred: who, Ino: roots, Name: "security.capability"}, nil),
			"trusted":      r.asks(a, proto.MethodSetXattr, &proto.XattrAsk{Cred: who, Ino: roots, Name: "trusted.x"}, nil),
			"bind":         r.asks(a, proto.MethodGetXattr, &proto.XattrAsk{Cred: who, Ino: roots, Name: "user.hmc.bind"}, nil),
			"handle":       r.asks(a, proto.MethodGetXattr, &proto.XattrAsk{Cred: who, Ino: roots, Name: "user.hmc.handle"}, nil),
			"name in root": r.asks(a, proto.MethodCreate, &proto.CreateAsk{Cred: who, Dir: 1, Name: "x", Mode: 0o40777}, nil),
			"publish":      r.asks(a, proto.MethodLookup, &proto.LookupAsk{Cred: who, Dir: uint64(metadata.PublishIno), Name: "x"}, nil),
			"reserved":     r.asks(a, proto.MethodAttr, &proto.InoAsk{Cred: who, Ino: 17}, nil),
			"a device": r.asks(a, proto.MethodCreate, &proto.CreateAsk{
				Cred: who, Dir: uint64(a.Dir("sim0")), Name: "d", Mode: uint32(metadata.TypeBlock | 0o666),
			}, nil),
			"a file as a directory": r.asks(a, proto.MethodLookup, &proto.LookupAsk{Cred: who, Dir: roots, Name: "x"}, nil),
			"pull of ourselves":     r.asks(a, proto.MethodPull, &proto.PullAsk{Cred: who, Node: "a", Ino: roots, N: 10}, nil),
		} {
			var failed *rpc.Error
			if !errors.As(err, &failed) || failed.Code == rpc.CodeUnknown {
				t.Errorf("%s by %s: %v", what, name, err)
			}
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "/", "x\x00", string(make([]byte, 300))} {
		dir := uint64(a.Dir("sim0"))
		who := proto.Cred{UID: 65534, GID: 65534}
		for what, err := range map[string]error{
			"create": r.asks(a, proto.MethodCreate, &proto.CreateAsk{Cred: who, Dir: dir, Name: name, Mode: 0o100644}, nil),
			"lookup": r.asks(a, proto.MethodLookup, &proto.LookupAsk{Cred: who, Dir: dir, Name: name}, nil),
			"rmdir":  r.asks(a, proto.MethodRemove, &proto.RemoveAsk{Cred: who, Dir: dir, Name: name, Folder: true}, nil),
			"rename": r.asks(a, proto.MethodRename, &proto.RenameAsk{Cred: who, From: dir, Name: "f", To: dir, NewName: name}, nil),
			"link":   r.asks(a, proto.MethodLink, &proto.LinkAsk{Cred: who, Ino: roots, Dir: dir, Name: name}, nil),
			"info":   r.asks(a, proto.MethodKeyInfo, &proto.KeyAsk{Cred: who, Key: name, Publish: true}, nil),
			"drop":   r.asks(a, proto.MethodFindKey, &proto.KeyAsk{Cred: who, Key: name}, nil),
			"claim":  r.asks(a, proto.MethodClaim, &proto.ClaimAsk{Cred: who, Key: name}, nil),
		} {
			var failed *rpc.Error
			if !errors.As(err, &failed) || failed.Code == rpc.CodeUnknown {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	if got := string(a.Content(metadata.Ino(roots))); got != "bytes of root" {
		t.Errorf("the file is %q", got)
	}
}

// TestForgedCtime: users cannot set the change time of an inode, not even its owner.
func TestForgedCtime(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	r := newRogue(t, w, nil)
	r.visits(a)
	ino := a.File("sim0", "f", nil)
	if _, err := a.Store.SetAttr(t.Context(), ino, objects.Change{UID: new(uint32(7))}); err != nil {
		t.Fatal(err)
	}
	old := proto.Time{Sec: 1}
	var now proto.Attr
	err := r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{
		Cred: proto.Cred{UID: 7}, Ino: uint64(ino), Set: proto.SetCtime | proto.SetMtime, Ctime: old, Mtime: old,
	}, &now)
	if err != nil || now.Ctime == old || now.Mtime != old {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestClaimsOutOfOrder takes, gives back and reads a publication in orders that no honest
// receiver uses: it is received once, and nothing is left of it.
func TestClaimsOutOfOrder(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	r := newRogue(t, w, map[rpc.Method]rpc.Handler{
		proto.MethodHaveKeys: answer(&proto.HaveKeysAnswer{There: []bool{false}}),
	})
	r.visits(a)
	content := "what is published"
	a.File("sim0", "f", []byte(content))
	err := a.Store.Rename(t.Context(), metadata.Rename{From: a.Dir("sim0"), Name: "f", To: metadata.PublishIno, NewName: "k"})
	if err != nil {
		t.Fatal(err)
	}
	b, memory := r.lend()
	claim := func(id byte, sizes ...uint64) (out proto.ClaimAnswer, err error) {
		err = r.asks(a, proto.MethodClaim, &proto.ClaimAsk{Key: "k", ID: [16]byte{id}, Blobs: sizes}, &out)
		return out, err
	}
	take := func(id byte, received bool) error {
		return r.asks(a, proto.MethodTake, &proto.TakeAsk{ID: [16]byte{id}, Received: received}, nil)
	}
	read := func(handle uint64) (out proto.MoveAnswer, err error) {
		err = r.asks(a, proto.MethodRead, &proto.MoveAsk{Handle: handle, N: 4096, Memory: memory}, &out)
		return out, err
	}
	if out, failure := claim(1, 1, 2, 3); failure != nil || out.Handle != 0 {
		t.Errorf("of another shape: %+v, %v", out, failure)
	}
	first, err := claim(2)
	if err != nil || first.Handle == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := claim(2)
	if err != nil || again.Handle == first.Handle {
		t.Errorf("claimed again: %+v, %v", again, err)
	}
	for what, err := range map[string]error{
		"writes":   r.asks(a, proto.MethodWrite, &proto.MoveAsk{Handle: first.Handle, N: 1, Memory: memory}, nil),
		"cuts":     r.asks(a, proto.MethodAllocate, &proto.AllocateAsk{Handle: first.Handle, N: 1}, nil),
		"touches":  r.asks(a, proto.MethodSetAttr, &proto.SetAttrAsk{Handle: first.Handle, Ino: uint64(metadata.PublishIno)}, nil),
		"copies":   r.asks(a, proto.MethodCopy, &proto.CopyAsk{Dst: first.Handle, Src: again.Handle, N: 1}, nil),
		"pulls":    r.asks(a, proto.MethodPull, &proto.PullAsk{Handle: first.Handle, Node: "b", Ino: 2000, N: 1}, nil),
		"takes it": take(9, true),
	} {
		if err == nil {
			t.Errorf("who claims %s", what)
		}
	}
	if err = take(2, false); err != nil {
		t.Error(err)
	}
	if err = take(2, true); err == nil {
		t.Error("taken when it was given back")
	}
	// Its handles are still open, while another claim takes it.
	if _, err = claim(3); err != nil {
		t.Fatal(err)
	}
	if err = take(3, true); err != nil {
		t.Error(err)
	}
	if err = take(3, true); err != nil {
		t.Errorf("taken again: %v", err)
	}
	if _, err = claim(3); err == nil {
		t.Error("claimed again, by the same name")
	}
	if _, err = claim(4); err == nil {
		t.Error("received twice")
	}
	if out, failure := read(first.Handle); failure == nil && out.N != uint64(len(content)) {
		t.Errorf("%+v", out)
	}
	if err = b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err = r.comm.Disconnect(rankOf("a")); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, 10*time.Second, func() bool { return used(t, a, "sim0") == 0 })
}

// TestTooLarge refuses invalid sizes from a peer.
func TestTooLarge(t *testing.T) {
	for name, move := range map[string]proto.MoveAnswer{
		"size": {N: 10, Size: math.MaxUint64}, "place": {N: 10, Off: math.MaxInt64 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			w := clustertest.New(t, clustertest.Options{})
			newRogue(t, w, map[rpc.Method]rpc.Handler{proto.MethodWrite: answer(&move), proto.MethodSeek: answer(&proto.SeekAnswer{Off: math.MaxUint64})})
			f := open(t, w.Peer("a", "b"), 2000)
			if _, err := f.WriteAt(t.Context(), make([]byte, 10), objects.Write{}); !errors.Is(err, proto.ErrBody) || f.Size() > 100 {
				t.Errorf("taken: %v, %d bytes", err, f.Size())
			}
			if off, err := f.Seek(t.Context(), 0, objects.SeekHole); !errors.Is(err, proto.ErrBody) {
				t.Errorf("a hole at %d: %v", off, err)
			}
		})
	}
}
