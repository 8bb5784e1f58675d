package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// says is a rogue that gives a configured answer to one method, and honest answers to others.
type says struct {
	mu sync.Mutex
	// +checklocks:mu
	method rpc.Method
	// +checklocks:mu
	answer any
}

func (s *says) set(m rpc.Method, answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.method, s.answer = m, answer
}

// handler answers a method: an error is sent as its code.
func (s *says) handler(m rpc.Method, honest any) rpc.Handler {
	return func(context.Context, rpc.Caller, []byte) ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body := honest
		if s.method == m {
			body = s.answer
		}
		if err, failed := body.(error); failed {
			return nil, err
		}
		return proto.Encode(body)
	}
}

// coded is an error that is sent as a code.
type coded struct {
	code rpc.Code
	text string
}

func (c *coded) Error() string { return c.text }

func codeOf(err error) rpc.Code {
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	return rpc.CodeUnknown
}

// asked is a request of a test: about the rogue's directory 2001, or its file 2000, which is
// open.
type asked struct {
	method rpc.Method
	ask    func(ctx context.Context, n *cluster.Node, f *cluster.File) error
}

func askings() map[string]asked {
	root := clustertest.Root()
	made := metadata.Node{Mode: metadata.TypeRegular | 0o644}
	return map[string]asked{
		"lookup": {proto.MethodLookup, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.Lookup(ctx, root, 2001, "x")
			return err
		}},
		"attr": {proto.MethodAttr, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			n.Forget()
			_, err := n.Attr(ctx, root, 2000)
			return err
		}},
		"setattr": {proto.MethodSetAttr, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.SetAttr(ctx, root, 2000, objects.Change{Mode: new(metadata.Mode(0o600))}, nil)
			return err
		}},
		"create": {proto.MethodCreate, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.Create(ctx, root, 2001, "x", made)
			return err
		}},
		"link": {proto.MethodLink, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.Link(ctx, root, 2000, 2001, "x")
			return err
		}},
		"createopen": {proto.MethodCreateOpen, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, f, err := n.CreateOpen(ctx, root, 2001, "x", made, objects.PermRead)
			if err == nil {
				err = f.Close(ctx)
			}
			return err
		}},
		"open": {proto.MethodOpen, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			f, err := n.Open(ctx, root, 2000, objects.PermRead)
			if err == nil {
				err = f.Close(ctx)
			}
			return err
		}},
		"readdir": {proto.MethodReadDir, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.OpenDir(root, 2001).After(ctx, 0)
			return err
		}},
		"getxattr": {proto.MethodGetXattr, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.GetXattr(ctx, root, 2000, "user.x")
			return err
		}},
		"listxattr": {proto.MethodListXattr, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.ListXattr(ctx, root, 2000)
			return err
		}},
		"statfs": {proto.MethodStatFS, func(ctx context.Context, n *cluster.Node, _ *cluster.File) error {
			_, err := n.StatFS(ctx, root, 2000)
			return err
		}},
		"read": {proto.MethodRead, func(ctx context.Context, _ *cluster.Node, f *cluster.File) error {
			_, err := f.Peek(ctx, make([]byte, 10), 0)
			return err
		}},
		"write": {proto.MethodWrite, func(ctx context.Context, _ *cluster.Node, f *cluster.File) error {
			_, err := f.WriteAt(ctx, make([]byte, 10), objects.Write{})
			return err
		}},
		"allocate": {proto.MethodAllocate, func(ctx context.Context, _ *cluster.Node, f *cluster.File) error {
			return f.Allocate(ctx, objects.AllocateExtend, 0, 10)
		}},
		"seek": {proto.MethodSeek, func(ctx context.Context, _ *cluster.Node, f *cluster.File) error {
			_, err := f.Seek(ctx, 5, objects.SeekData)
			return err
		}},
		"sums": {proto.MethodSums, func(ctx context.Context, _ *cluster.Node, f *cluster.File) error {
			_, err := f.Sums(ctx, 4096, 0, 2)
			return err
		}},
	}
}

// attrs returns attributes that no inode can have.
func attrs() map[string]func(a *proto.Attr) {
	return map[string]func(a *proto.Attr){
		"no number":       func(a *proto.Attr) { a.Ino = 0 },
		"too high":        func(a *proto.Attr) { a.Ino = 1 << 44 },
		"highest":         func(a *proto.Attr) { a.Ino = math.MaxUint64 },
		"no type":         func(a *proto.Attr) { a.Mode = 0o644 },
		"all types":       func(a *proto.Attr) { a.Mode |= 0o170000 },
		"more than mode":  func(a *proto.Attr) { a.Mode |= 1 << 17 },
		"negative size":   func(a *proto.Attr) { a.Size = 1 << 63 },
		"negative blocks": func(a *proto.Attr) { a.Allocated = 1 << 63 },
		"no state":        func(a *proto.Attr) { a.State = "" },
		"no such state":   func(a *proto.Attr) { a.State = "x" },
		"a target":        func(a *proto.Attr) { a.Target = "x" },
		"no target":       func(a *proto.Attr) { a.Mode = uint32(metadata.TypeSymlink | 0o777) },
		"long target": func(a *proto.Attr) {
			a.Mode, a.Target = uint32(metadata.TypeSymlink|0o777), strings.Repeat("x", metadata.MaxTarget+1)
		},
		"NUL in target": func(a *proto.Attr) {
			a.Mode, a.Target = uint32(metadata.TypeSymlink|0o777), "a\x00b"
		},
		"a key that leads away": func(a *proto.Attr) { a.Key = "../x" },
		"a long key":            func(a *proto.Attr) { a.Key = strings.Repeat("k", metadata.MaxKey+1) },
		"a device elsewhere":    func(a *proto.Attr) { a.Device = "../sim0" },
		"a long device":         func(a *proto.Attr) { a.Device = strings.Repeat("d", 300) },
		"a long way":            func(a *proto.Attr) { a.Path = strings.Repeat("w", 1<<20-1000) },
		"a way with controls":   func(a *proto.Attr) { a.Path = "\x1b[2J" },
		"a second too many":     func(a *proto.Attr) { a.Mtime.Nsec = 1e9 },
	}
}

// entryOf returns an entry of the rogue's directory 2001.
func entryOf(name string, ino, cookie uint64) proto.Entry {
	return proto.Entry{Name: name, Ino: ino, Type: uint32(metadata.TypeRegular), Cookie: cookie}
}

func pageOf(entries ...proto.Entry) *proto.ReadDirAnswer {
	return &proto.ReadDirAnswer{Entries: entries, End: true}
}

// lies returns invalid answers, by request.
func lies() map[string]map[string]any {
	other := regularOf(2002, 100)
	folder := regularOf(2000, 0)
	folder.Mode = uint32(metadata.TypeDir | 0o755)
	root, self := regularOf(1, 0), regularOf(2001, 0)
	root.Mode, self.Mode = folder.Mode, folder.Mode
	strange := entryOf("x", 7, 1)
	strange.Attr = folder
	many := make([]proto.Entry, 2049)
	for i := range many {
		many[i] = entryOf(fmt.Sprint(i), 7, uint64(i+1))
	}
	out := map[string]map[string]any{
		"lookup":  {"the root": &root, "the directory itself": &self},
		"attr":    {"another inode": &other},
		"setattr": {"another inode": &other},
		"create":  {"a directory": &folder, "the directory itself": &self},
		"link":    {"another inode": &other},
		"createopen": {
			"a directory": &proto.OpenAnswer{Handle: 7, Attr: folder}, "the root": &proto.OpenAnswer{Handle: 7, Attr: root},
		},
		"open": {
			"another inode": &proto.OpenAnswer{Handle: 7, Attr: other}, "no handle": &proto.OpenAnswer{Attr: regularOf(2000, 1)},
			"a directory": &proto.OpenAnswer{Handle: 7, Attr: folder},
		},
		"readdir": {
			"no page": &proto.ReadDirAnswer{}, "twice": pageOf(entryOf("x", 7, 1), entryOf("x", 8, 2)),
			"out of order": pageOf(entryOf("x", 7, 2), entryOf("y", 8, 2)), "no cookie": pageOf(entryOf("x", 7, 0)),
			"no number": pageOf(entryOf("x", 0, 1)), "the root": pageOf(entryOf("x", 1, 1)), "itself": pageOf(entryOf("x", 2001, 1)),
			"too high": pageOf(entryOf("x", 1<<44, 1)), "of another type": pageOf(strange), "too many": pageOf(many...),
		},
		"getxattr":  {"too long": &proto.XattrAnswer{Value: make([]byte, metadata.MaxXattr+1)}},
		"listxattr": {"too many": &proto.ListXattrAnswer{Names: strings.Split(strings.Repeat(strings.Repeat("x", 250)+" ", 300)+"x", " ")}},
		"statfs": {
			"more free": &proto.StatFSAnswer{Device: "sim0", Total: 1, Free: 2}, "negative": &proto.StatFSAnswer{Total: 1 << 63},
			"a device with controls": &proto.StatFSAnswer{Device: "\x1b[2J"},
		},
		"read":     {"more": &proto.MoveAnswer{N: 11}, "much more": &proto.MoveAnswer{N: math.MaxInt64}, "negative": &proto.MoveAnswer{N: 10, Size: 1 << 63}},
		"write":    {"more": &proto.MoveAnswer{N: 11}, "negative": &proto.MoveAnswer{N: 1 << 63}, "negative size": &proto.MoveAnswer{Size: 1 << 63}},
		"allocate": {"another inode": &other},
		"seek":     {"before": &proto.SeekAnswer{Off: 4}, "negative": &proto.SeekAnswer{Off: 1 << 63}},
		"sums":     {"half of one": &proto.SumsAnswer{Sums: make([]byte, 48)}, "more": &proto.SumsAnswer{Sums: make([]byte, 96)}, "negative": &proto.SumsAnswer{Size: 1 << 63}},
	}
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00", strings.Repeat("x", 256)} {
		out["readdir"][fmt.Sprintf("name %.10q", name)] = pageOf(entryOf(name, 7, 1))
		if name == "" || strings.Contains(name, "\x00") || len(name) > 255 {
			out["listxattr"][fmt.Sprintf("name %.10q", name)] = &proto.ListXattrAnswer{Names: []string{"user.x", name}}
		}
	}
	for name, spoil := range attrs() {
		a := regularOf(2000, 100)
		spoil(&a)
		for _, what := range []string{"lookup", "attr", "setattr", "create", "link", "allocate"} {
			out[what][name] = &a
		}
		out["open"][name] = &proto.OpenAnswer{Handle: 7, Attr: a}
		out["createopen"][name] = &proto.OpenAnswer{Handle: 7, Attr: a}
		if a.Ino != 0 { // 0 is an entry without attributes
			e := entryOf("x", a.Ino, 1)
			e.Attr = a
			out["readdir"][name] = pageOf(e)
		}
	}
	for what := range out {
		out[what]["another body"] = &proto.Invalid{Inos: []uint64{1}, Names: []uint64{2}}
		out[what]["nothing"] = &struct {
			_ struct{} `cbor:",toarray"`
		}{}
	}
	return out
}

// TestLies has an authenticated node answer each request in each way that no honest node does:
// the requester gets an error and accepts nothing, and its own tree is unchanged.
func TestLies(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	content := kit.Bytes(1, 0, 5000)
	ours := a.File("sim0", "ours", content)
	before, err := a.Store.Attr(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	honest := regularOf(2000, 100)
	rogue := &says{}
	handlers := map[rpc.Method]rpc.Handler{
		proto.MethodOpen:  rogue.handler(proto.MethodOpen, &proto.OpenAnswer{Handle: 7, Attr: honest}),
		proto.MethodAttr:  rogue.handler(proto.MethodAttr, &honest),
		proto.MethodClose: answer(&honest),
	}
	questions := askings()
	for _, q := range questions {
		if handlers[q.method] == nil {
			handlers[q.method] = rogue.handler(q.method, nil)
		}
	}
	newRogue(t, w, handlers)
	b := w.Peer("a", "b")
	f := open(t, b, 2000)
	for what, answers := range lies() {
		q := questions[what]
		for name, answer := range answers {
			rogue.set(q.method, answer)
			if err = q.ask(t.Context(), b, f); !errors.Is(err, proto.ErrBody) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
		rogue.set(0, nil)
	}
	got, err := b.Attr(t.Context(), clustertest.Root(), 2000)
	if err != nil || got.Size != 100 || f.Size() != 100 {
		t.Errorf("an honest answer afterwards: %+v, %v, size %d", got, err, f.Size())
	}
	after, err := a.Store.Attr(t.Context(), ours)
	if err != nil || after.Ctime != before.Ctime || string(a.Content(ours)) != string(content) {
		t.Errorf("our own file: %+v, %v", after, err)
	}
}

// TestLyingErrors has a node answer with every possible code: an error has an errno that the
// kernel accepts, and a text that can be shown.
func TestLyingErrors(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	rogue := &says{}
	newRogue(t, w, map[rpc.Method]rpc.Handler{proto.MethodGetXattr: rogue.handler(proto.MethodGetXattr, nil)})
	b := w.Peer("a", "b")
	for code := range rpc.Code(0x1100) {
		if code == proto.CodeNoHello || code > 0x100 && code < proto.CodeErrno {
			continue
		}
		rogue.set(proto.MethodGetXattr, &coded{code, "a \x1b[2Jtext\nof another node"})
		_, err := b.GetXattr(t.Context(), clustertest.Root(), 2000, "user.x")
		if err == nil || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("code %#x: %q", code, err)
		}
	}
	for _, code := range []rpc.Code{proto.CodeErrno + 38, proto.CodeErrno + 512, proto.CodeErrno + 517, proto.CodeErrnoLast, math.MaxUint16} {
		rogue.set(proto.MethodGetXattr, &coded{code, "x"})
		_, err := b.GetXattr(t.Context(), clustertest.Root(), 2000, "user.x")
		if number := errnoOf(err); err == nil || number == 38 || number >= 512 {
			t.Errorf("code %#x is %d: %v", code, number, err)
		}
	}
}

// TestOvertaken has answers arrive in a different order than they were made in: the older one
// changes neither the size of an open file nor the cache.
func TestOvertaken(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) { o.AttrTTL = time.Hour }})
	rogue := &says{}
	old, now := regularOf(2000, 100), regularOf(2000, 300)
	old.Order, now.Order, old.Keep, now.Keep = 5, 9, 60_000, 60_000
	newRogue(t, w, map[rpc.Method]rpc.Handler{
		proto.MethodOpen:     answer(&proto.OpenAnswer{Handle: 7, Attr: old}),
		proto.MethodRead:     rogue.handler(proto.MethodRead, nil),
		proto.MethodWrite:    rogue.handler(proto.MethodWrite, nil),
		proto.MethodAllocate: rogue.handler(proto.MethodAllocate, nil),
		proto.MethodLookup:   rogue.handler(proto.MethodLookup, nil),
		proto.MethodReadDir:  rogue.handler(proto.MethodReadDir, nil),
		proto.MethodSetAttr:  rogue.handler(proto.MethodSetAttr, nil),
	})
	b := w.Peer("a", "b")
	f := open(t, b, 2000)
	questions := askings()
	entry := entryOf("x", 2000, 1)
	entry.Attr = old
	put := func(what string, answer any) {
		t.Helper()
		rogue.set(questions[what].method, answer)
		if err := questions[what].ask(t.Context(), b, f); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	put("write", &proto.MoveAnswer{N: 10, Size: 300, Order: 9})
	for what, answer := range map[string]any{
		"read": &proto.MoveAnswer{N: 10, Size: 100, Order: 8}, "write": &proto.MoveAnswer{N: 10, Size: 100, Order: 7},
		"allocate": &old, "setattr": &old, "readdir": pageOf(entry), "lookup": &old,
	} {
		put(what, answer)
		if f.Size() != 300 {
			t.Errorf("%s: the size is %d by an answer from before", what, f.Size())
		}
	}
	b.Forget()
	entry.Attr = now
	put("readdir", pageOf(entry))
	entry.Attr = old
	put("readdir", pageOf(entry))
	if a, err := b.Lookup(t.Context(), clustertest.Root(), 2001, "x"); err != nil || a.Size != 300 {
		t.Errorf("remembered: %d bytes, %v", a.Size, err)
	}
}
