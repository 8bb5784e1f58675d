package cluster

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// serverRig is a server over a store, without a network: requests are passed to the handlers,
// and notices are received here.
type serverRig struct {
	t      testing.TB
	store  *objects.Store
	server *server
	ask    map[rpc.Method]rpc.Handler

	mu sync.Mutex
	// deaf is the number of notices that are refused before one is accepted.
	deaf int
	told []proto.Invalid
	// hear is called with each notice, if not nil.
	hear   func(wire.Rank, proto.Invalid)
	served []objects.Notice
	met    []members.Record
}

func newServerRig(t testing.TB, change ...func(*serverOptions)) *serverRig {
	t.Helper()
	kit.Check(t)
	r := &serverRig{t: t}
	dev := sim.New(0, sim.Params{Size: 64 * devices.MiB})
	meta, err := metadata.Open(t.Context(), memkv.New(), metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.store, err = objects.Open(t.Context(), objects.Options{
		Meta: meta, Engine: engine, Devices: []devices.Device{dev}, DirMode: 0o777,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := serverOptions{
		Store: r.store, Self: func() members.Record { return members.Record{Name: "b", Epoch: 3} }, Cluster: "test",
		Squash: Squash{Mode: SquashNone}, AttrTTL: time.Hour, Log: zap.NewNop(), Count: &counters{}, Notify: r.notify,
		Met: func(m members.Record) { r.met = append(r.met, m) },
		Served: func(n objects.Notice) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.served = append(r.served, n)
		},
	}
	for _, set := range change {
		set(&o)
	}
	r.server = newServer(o)
	r.ask = r.server.handlers()
	r.server.protect(r.ask)
	t.Cleanup(func() {
		r.server.close()
		if err := r.store.Close(context.Background(), objects.CloseOptions{}); err != nil {
			t.Error(err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if u, err := dev.Usage(); err != nil || u.Used != 0 {
			t.Errorf("%v in use at the end, %v", u.Used, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if err := meta.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *serverRig) notify(to wire.Rank, m rpc.Method, body []byte) (bool, error) {
	var what proto.Invalid
	if err := proto.Decode(body, &what); err != nil || m != proto.NoticeInvalid {
		r.t.Errorf("notice %#x: %v", m, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf > 0 {
		r.deaf--
		return false, nil
	}
	r.told = append(r.told, what)
	if r.hear != nil {
		r.hear(to, what)
	}
	return true, nil
}

// from returns a session of node "a".
func from(session wire.Session) rpc.Caller {
	rank := wire.Rank(members.Name("a").Rank())
	return rpc.Caller{Rank: rank, Session: comm.Origin{Rank: rank, Session: session}}
}

// hello starts a session of node "a".
func (r *serverRig) hello(session wire.Session) rpc.Caller {
	r.t.Helper()
	record, err := json.Marshal(members.Record{Name: "a", Epoch: 7})
	if err != nil {
		r.t.Fatal(err)
	}
	who := from(session)
	var welcome proto.Welcome
	if err := r.put(who, proto.MethodHello, &proto.Hello{Version: proto.Version, Cluster: "test", Record: record}, &welcome); err != nil {
		r.t.Fatal(err)
	}
	var self members.Record
	if err := json.Unmarshal(welcome.Record, &self); err != nil || self.Name != "b" || welcome.Version != proto.Version {
		r.t.Fatalf("welcome: %+v, %v", welcome, err)
	}
	return who
}

// put sends a request. A nil out expects no answer.
func (r *serverRig) put(who rpc.Caller, m rpc.Method, in, out any) error {
	r.t.Helper()
	body, err := proto.Encode(in)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.ask[m](r.t.Context(), who, body)
	if err != nil {
		return err
	}
	if len(answer) > rpc.MaxAnswer {
		r.t.Errorf("method %d: an answer of %d bytes", m, len(answer))
	}
	if out == nil {
		if len(answer) > 0 {
			r.t.Errorf("method %d: an answer of %d bytes to what has none", m, len(answer))
		}
		return nil
	}
	return proto.Decode(answer, out)
}

// must is put without an error.
func (r *serverRig) must(who rpc.Caller, m rpc.Method, in, out any) {
	r.t.Helper()
	if err := r.put(who, m, in, out); err != nil {
		r.t.Fatalf("method %d: %v", m, err)
	}
}

// top returns the directory of the device.
func (r *serverRig) top() objects.Ino {
	r.t.Helper()
	a, err := r.store.Lookup(r.t.Context(), metadata.RootIno, "sim0")
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

// file creates a file in the owner's store.
func (r *serverRig) file(name string) objects.Attr {
	r.t.Helper()
	a, err := r.store.Create(r.t.Context(), r.top(), name, metadata.Node{Mode: metadata.TypeRegular | 0o666})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// open opens a file.
func (r *serverRig) open(who rpc.Caller, ino objects.Ino, access uint32) uint64 {
	r.t.Helper()
	var out proto.OpenAnswer
	r.must(who, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(ino), Access: access}, &out)
	return out.Handle
}

// settle waits until every session has been notified, and returns the notices.
func (r *serverRig) settle() []proto.Invalid {
	r.t.Helper()
	kit.Eventually(r.t, 10*time.Second, func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		for _, g := range r.server.sessions {
			g.mu.Lock()
			busy := g.pushing
			g.mu.Unlock()
			if busy {
				return false
			}
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}
