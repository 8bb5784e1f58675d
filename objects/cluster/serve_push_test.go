package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// chmod changes a file in the owner's store.
func (r *serverRig) chmod(ino objects.Ino, mode metadata.Mode) {
	r.t.Helper()
	if _, err := r.store.SetAttr(r.t.Context(), ino, objects.Change{Mode: &mode}); err != nil {
		r.t.Fatal(err)
	}
}

// inosOfTold returns the inodes in notices, and names the directories.
func inosOfTold(told []proto.Invalid) (inos, names []uint64) {
	for _, n := range told {
		inos, names = append(inos, n.Inos...), append(names, n.Names...)
	}
	return inos, names
}

func TestWhoWasToldIsToldOfChanges(t *testing.T) {
	r := newServerRig(t)
	who, a, b := r.hello(1), r.file("a"), r.file("b")
	attr := func(ino objects.Ino) proto.Attr {
		var out proto.Attr
		r.must(who, proto.MethodAttr, &proto.InoAsk{Ino: uint64(ino)}, &out)
		return out
	}
	if got := attr(a.Ino); got.Keep != uint32(time.Hour.Milliseconds()) {
		t.Errorf("an answer may be kept for %d ms", got.Keep)
	}
	r.chmod(b.Ino, 0o600) // no session has requested it
	r.chmod(a.Ino, 0o600)
	if inos, names := inosOfTold(r.settle()); !slices.Equal(inos, []uint64{uint64(a.Ino)}) || len(names) > 0 {
		t.Errorf("told of %v and names of %v", inos, names)
	}
	// The session has dropped it, so there is nothing more to notify.
	r.chmod(a.Ino, 0o644)
	if told := r.settle(); len(told) > 0 {
		t.Errorf("told again: %+v", told)
	}
	// An open file is different.
	h := r.open(who, a.Ino, proto.AccessRead|proto.AccessWrite)
	r.settle()
	for i := range 3 {
		r.chmod(a.Ino, metadata.Mode(0o600+i))
		if inos, _ := inosOfTold(r.settle()); !slices.Contains(inos, uint64(a.Ino)) {
			t.Errorf("change %d of an open file: told of %v", i, inos)
		}
	}
	// The session knows of its own change.
	r.must(who, proto.MethodAllocate, &proto.AllocateAsk{Handle: h, N: 1}, &proto.Attr{})
	if told := r.settle(); len(told) > 0 {
		t.Errorf("told of his own change: %+v", told)
	}
	r.must(who, proto.MethodClose, &proto.HandleAsk{Handle: h}, &proto.Attr{})
	r.settle()
	r.chmod(a.Ino, 0o644) // the answer of the close is cached
	r.settle()
	r.chmod(a.Ino, 0o600)
	if told := r.settle(); len(told) > 0 {
		t.Errorf("told of a file that was closed: %+v", told)
	}
}

func TestNamesAreTold(t *testing.T) {
	r := newServerRig(t)
	who, top := r.hello(1), uint64(r.top())
	r.file("a")
	for name, ask := range map[string]func(){
		"look up": func() { r.must(who, proto.MethodLookup, &proto.LookupAsk{Dir: top, Name: "a"}, &proto.Attr{}) },
		"list":    func() { r.must(who, proto.MethodReadDir, &proto.ReadDirAsk{Dir: top}, &proto.ReadDirAnswer{}) },
		"create": func() {
			r.must(who, proto.MethodCreate, &proto.CreateAsk{Dir: top, Name: fmt.Sprint(time.Now().UnixNano()), Mode: 0o100644}, &proto.Attr{})
		},
		// A missing name is looked up, and the answer is not cached; but the session is
		// notified nevertheless.
		"look up nothing": func() { _ = r.put(who, proto.MethodLookup, &proto.LookupAsk{Dir: top, Name: "none"}, &proto.Attr{}) },
	} {
		ask()
		r.settle()
		ask()
		r.file("new " + name)
		if _, names := inosOfTold(r.settle()); !slices.Contains(names, top) {
			t.Errorf("%s: a new name was not told", name)
		}
	}
}

// TestOnlyWhoAsked: another session is not notified.
func TestOnlyWhoAsked(t *testing.T) {
	r := newServerRig(t)
	a := r.file("a")
	r.hello(1)
	two := r.hello(2)
	r.must(two, proto.MethodAttr, &proto.InoAsk{Ino: uint64(a.Ino)}, &proto.Attr{})
	r.server.ended(two)
	r.chmod(a.Ino, 0o600)
	if told := r.settle(); len(told) > 0 {
		t.Errorf("told %+v", told)
	}
}

// listener is a session that accepts no notices until it is opened.
type listener struct {
	*servedSession
	mu   sync.Mutex
	open bool
	told []proto.Invalid
}

func newListener(t *testing.T) *listener {
	t.Helper()
	l := &listener{servedSession: &servedSession{from: from(1), gone: make(chan struct{})}}
	l.server = &server{push: newPusher(time.Hour), o: serverOptions{Count: &counters{}}}
	l.server.o.Notify = func(_ wire.Rank, _ rpc.Method, body []byte) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.open {
			return false, nil
		}
		var what proto.Invalid
		if err := proto.Decode(body, &what); err != nil || len(body) > rpc.MaxQuestion {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		l.told = append(l.told, what)
		return true, nil
	}
	return l
}

// hear accepts all notices.
func (l *listener) hear() []proto.Invalid {
	l.mu.Lock()
	l.open = true
	l.mu.Unlock()
	l.server.work.Wait()
	return l.told
}

// TestSlowListener: a session that accepts no notices is notified once it does.
func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(t)
		for range 3 {
			for ino := range metadata.Ino(10_000) {
				l.invalid(topicOf(1<<60 + ino))
			}
		}
		synctest.Wait()
		seen := map[uint64]int{}
		inos, _ := inosOfTold(l.hear())
		for _, ino := range inos {
			if seen[ino]++; seen[ino] > 2 { // possibly also in the notice that was refused
				t.Fatalf("%d was told %d times", ino, seen[ino])
			}
		}
		if len(seen) != 10_000 {
			t.Errorf("%d of 10000 were told", len(seen))
		}
	})
}

// TestFarBehind: a session that is far behind is told to drop everything.
func TestFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(t)
		for ino := range metadata.Ino(maxPending + maxTold + 10) {
			l.invalid(topicOf(ino + 1))
		}
		synctest.Wait()
		if !slices.ContainsFunc(l.hear(), func(n proto.Invalid) bool { return len(n.Inos)+len(n.Names) == 0 }) {
			t.Error("it was not told to forget everything")
		}
	})
}

// TestEndWhileWaiting: nothing waits for a session that has ended.
func TestEndWhileWaiting(t *testing.T) {
	r := newServerRig(t)
	who, a := r.hello(1), r.file("a")
	r.must(who, proto.MethodAttr, &proto.InoAsk{Ino: uint64(a.Ino)}, &proto.Attr{})
	r.mu.Lock()
	r.deaf = 1 << 30
	r.mu.Unlock()
	r.chmod(a.Ino, 0o600)
	r.server.ended(who)
	r.server.work.Wait()
}

// TestForgottenInTime: there are no notices for expired answers, and they use no memory.
func TestForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		p, g := newPusher(ttl), &servedSession{}
		held := func(topic topic) int {
			sh := p.shard(topic)
			sh.mu.Lock()
			defer sh.mu.Unlock()
			return len(sh.young[topic]) + len(sh.old[topic])
		}
		at := topicOf(7)
		p.remember(g, at, p.mark())
		<-time.After(ttl)
		synctest.Wait()
		if held(at) != 1 {
			t.Error("forgotten before its time")
		}
		<-time.After(3 * ttl)
		synctest.Wait()
		if held(at) != 0 {
			t.Error("remembered after its time")
		}
		p.mu.Lock()
		aging := p.aging
		p.mu.Unlock()
		if aging {
			t.Error("the timer runs and there is nothing to forget")
		}
		p.remember(g, at, p.mark())
		p.stop()
	})
}

// TestChangesAfterTheMark: a session that reads before a change and is registered after it is
// told at once that it is too late.
func TestChangesAfterTheMark(t *testing.T) {
	p, g := newPusher(time.Hour), &servedSession{}
	defer p.stop()
	mark := p.mark()
	p.changed(topicOf(7))
	if p.remember(g, topicOf(7), mark) {
		t.Error("a change between was missed")
	}
	if !p.remember(g, topicOf(8), mark) {
		t.Error("a change of something else counts")
	}
	if !p.remember(g, topicOf(9), p.mark()) {
		t.Error("a change before counts")
	}
}

// rememberer is a node that caches answers forever, as the client does.
type rememberer struct {
	mu  sync.Mutex
	gen map[uint64]int
	all int
	// asked counts requests.
	asked int
	attr  map[uint64]proto.Attr
}

func (m *rememberer) hear(_ wire.Rank, what proto.Invalid) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(what.Inos)+len(what.Names) == 0 {
		m.all++
		clear(m.attr)
	}
	for _, ino := range what.Inos {
		m.gen[ino]++
		delete(m.attr, ino)
	}
}

// ask requests an inode that is not cached, and caches the answer, unless it was notified of a
// change in the meantime.
func (m *rememberer) ask(r *serverRig, who rpc.Caller, method rpc.Method, in any, ino uint64) {
	m.mu.Lock()
	gen, all := m.gen[ino], m.all
	_, known := m.attr[ino]
	m.mu.Unlock()
	if known {
		return
	}
	var out proto.Attr
	r.must(who, method, in, &out)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if out.Keep > 0 && m.gen[ino] == gen && m.all == all {
		m.attr[ino] = out
	}
}

// changeAtRandom changes files in the owner's store.
func (r *serverRig) changeAtRandom(random *rand.Rand, files []objects.Attr) {
	ctx := r.t.Context()
	for range 1500 {
		ino, err := files[random.IntN(len(files))].Ino, error(nil)
		switch random.IntN(3) {
		case 0:
			_, err = r.store.SetAttr(ctx, ino, objects.Change{Mode: new(metadata.Mode(random.IntN(0o1000)))})
		case 1:
			var f *objects.File
			if f, err = r.store.OpenFile(ctx, ino); err == nil {
				_, err = f.WriteAt(ctx, []byte("x"), objects.Write{Off: random.Uint64N(1 << 20)})
				err = errors.Join(err, f.Close(ctx))
			}
		case 2:
			_, err = r.store.SetAttr(ctx, ino, objects.Change{Size: new(random.Uint64N(1 << 20))})
		}
		if err != nil {
			r.t.Error(err)
			return
		}
	}
}

// askAtRandom requests files by number and by name until the context ends.
func (m *rememberer) askAtRandom(ctx context.Context, r *serverRig, who rpc.Caller, random *rand.Rand, files []objects.Attr) {
	for ctx.Err() == nil {
		a := files[random.IntN(len(files))]
		if ino := uint64(a.Ino); random.IntN(2) == 0 {
			m.ask(r, who, proto.MethodAttr, &proto.InoAsk{Ino: ino}, ino) //nolint:contextcheck // a request that was started is answered
		} else {
			m.ask(r, who, proto.MethodLookup, &proto.LookupAsk{Dir: uint64(a.Parent), Name: a.Name}, ino) //nolint:contextcheck // as above
		}
	}
}

// TestNothingStaleIsKept has a node send requests and cache the answers while the owner
// changes everything. In the end the cache matches the owner's state, although no entries
// expire.
func TestNothingStaleIsKept(t *testing.T) {
	r := newServerRig(t)
	m := &rememberer{gen: map[uint64]int{}, attr: map[uint64]proto.Attr{}}
	r.hear = m.hear
	who := r.hello(1)
	var files []objects.Attr
	for i := range 8 {
		files = append(files, r.file(fmt.Sprint("f", i)))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers, readers sync.WaitGroup
	for w := range uint64(3) {
		writers.Go(func() { r.changeAtRandom(rand.New(rand.NewPCG(seed, w)), files) })
		readers.Go(func() { m.askAtRandom(ctx, r, who, rand.New(rand.NewPCG(seed, 100+w)), files) })
	}
	writers.Wait()
	// Answers of requests at the end of the changes are cached together with those of later
	// requests.
	kit.Eventually(t, 10*time.Second, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.attr) == len(files)
	})
	cancel()
	readers.Wait()
	r.settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	for ino, was := range m.attr {
		a, err := r.store.Attr(context.WithoutCancel(t.Context()), metadata.Ino(ino))
		if err != nil {
			t.Fatal(err)
		}
		now := attrToProto(&a, was.Keep)
		now.Order = was.Order
		// Not notified: reads change only the access time.
		now.Atime = was.Atime
		if now != was {
			t.Errorf("inode %d is remembered as\n%+v, and is\n%+v", ino, was, now)
		}
	}
	t.Logf("%d questions", m.asked)
}
