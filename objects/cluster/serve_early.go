package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// This file is to be removed when the server has come: it serves enough to
// build and test on, and checks nothing.

type serverOptions struct {
	Store   *objects.Store
	Engine  *transport.Engine
	Comm    *comm.Communicator
	Self    func() members.Record
	Cluster string
	Squash  Squash
	Owner   *uint32
	AttrTTL time.Duration
	Timeout time.Duration
	Log     *zap.Logger
	Count   *counters
	Notify  func(wire.Rank, rpc.Method, []byte) (bool, error)
	Met     func(members.Record)
	Served  func(objects.Notice)
	Pull    func(context.Context, *objects.File, *proto.PullAsk) (objects.Moved, error)
}

type server struct {
	o     serverOptions
	mu    sync.Mutex
	next  uint64
	files map[uint64]*objects.File
}

func newServer(o serverOptions) *server {
	return &server{o: o, next: uint64(time.Now().UnixNano()), files: map[uint64]*objects.File{}}
}

func (s *server) ended(rpc.Caller) {}
func (s *server) close()           {}

func handle[A any](fn func(ctx context.Context, from rpc.Caller, a *A) (any, error)) rpc.Handler {
	return func(ctx context.Context, from rpc.Caller, body []byte) ([]byte, error) {
		var a A
		if err := proto.Decode(body, &a); err != nil {
			return nil, err
		}
		out, err := fn(ctx, from, &a)
		if err != nil || out == nil {
			return nil, err
		}
		return proto.Encode(out)
	}
}

func (s *server) attr(a objects.Attr, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	out := attrToProto(&a, uint32(s.o.AttrTTL/time.Millisecond))
	return &out, nil
}

func (s *server) file(h uint64) (*objects.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[h]; f != nil {
		return f, nil
	}
	return nil, ErrStale
}

func (s *server) handlers() map[rpc.Method]rpc.Handler {
	return map[rpc.Method]rpc.Handler{
		proto.MethodHello: handle(func(_ context.Context, _ rpc.Caller, a *proto.Hello) (any, error) {
			if a.Cluster != s.o.Cluster {
				return nil, fmt.Errorf("cluster %q: %w", a.Cluster, ErrVersion)
			}
			var r members.Record
			if err := json.Unmarshal(a.Record, &r); err != nil {
				return nil, err
			}
			s.o.Met(r)
			self, err := json.Marshal(s.o.Self())
			return &proto.Welcome{Version: proto.Version, Record: self}, err
		}),
		proto.MethodLookup: handle(func(ctx context.Context, _ rpc.Caller, a *proto.LookupAsk) (any, error) {
			return s.attr(s.o.Store.Lookup(ctx, metadata.Ino(a.Dir), a.Name))
		}),
		proto.MethodAttr: handle(func(ctx context.Context, _ rpc.Caller, a *proto.InoAsk) (any, error) {
			return s.attr(s.o.Store.Attr(ctx, metadata.Ino(a.Ino)))
		}),
		proto.MethodCreate: handle(func(ctx context.Context, _ rpc.Caller, a *proto.CreateAsk) (any, error) {
			return s.attr(s.o.Store.Create(ctx, metadata.Ino(a.Dir), a.Name, metadata.Node{Mode: metadata.Mode(a.Mode), Target: a.Target}))
		}),
		proto.MethodSetAttr: handle(func(ctx context.Context, _ rpc.Caller, a *proto.SetAttrAsk) (any, error) {
			c, err := changeFromProto(a)
			if err != nil {
				return nil, err
			}
			return s.attr(s.o.Store.SetAttr(ctx, metadata.Ino(a.Ino), c))
		}),
		proto.MethodReadDir: handle(s.readDir),
		proto.MethodOpen: handle(func(ctx context.Context, _ rpc.Caller, a *proto.OpenAsk) (any, error) {
			f, err := s.o.Store.OpenFile(ctx, metadata.Ino(a.Ino))
			if err != nil {
				return nil, err
			}
			at, err := s.o.Store.Attr(ctx, metadata.Ino(a.Ino))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.next++
			s.files[s.next] = f
			return &proto.OpenAnswer{Handle: s.next, Attr: attrToProto(&at, 1000)}, err
		}),
		proto.MethodClose: handle(func(ctx context.Context, _ rpc.Caller, a *proto.HandleAsk) (any, error) {
			f, err := s.file(a.Handle)
			if err != nil {
				return nil, err
			}
			s.mu.Lock()
			delete(s.files, a.Handle)
			s.mu.Unlock()
			ino := f.Ino()
			_ = f.Close(ctx)
			return s.attr(s.o.Store.Attr(ctx, ino))
		}),
		proto.MethodRead:  handle(s.move(true)),
		proto.MethodWrite: handle(s.move(false)),
		proto.MethodCopy: handle(func(ctx context.Context, _ rpc.Caller, a *proto.CopyAsk) (any, error) {
			d, err := s.file(a.Dst)
			if err != nil {
				return nil, err
			}
			f, err := s.file(a.Src)
			if err != nil {
				return nil, err
			}
			n, err := s.o.Store.CopyRange(ctx, objects.CopyRange{Dst: d, DstOff: a.DstOff, Src: f, SrcOff: a.SrcOff, N: a.N})
			return &proto.MoveAnswer{N: n, Size: d.Size()}, err
		}),
		proto.MethodPull: handle(func(ctx context.Context, _ rpc.Caller, a *proto.PullAsk) (any, error) {
			d, err := s.file(a.Handle)
			if err != nil {
				return nil, err
			}
			moved, err := s.o.Pull(ctx, d, a)
			return &proto.MoveAnswer{N: moved.N, Size: d.Size(), Path: string(moved.Path)}, err
		}),
	}
}

func (s *server) readDir(ctx context.Context, _ rpc.Caller, a *proto.ReadDirAsk) (any, error) {
	list, err := s.o.Store.ReadDir(ctx, metadata.Ino(a.Dir), metadata.Cookie(a.Cookie), int(a.Limit))
	if err != nil {
		return nil, err
	}
	out := &proto.ReadDirAnswer{End: len(list) < int(a.Limit)}
	for i := range list {
		at, err := s.o.Store.Attr(ctx, list[i].Ino)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, entryToProto(&list[i], &at, 1000))
	}
	return out, nil
}

func (s *server) move(read bool) func(ctx context.Context, from rpc.Caller, a *proto.MoveAsk) (any, error) {
	return func(ctx context.Context, from rpc.Caller, a *proto.MoveAsk) (any, error) {
		f, err := s.file(a.Handle)
		if err != nil {
			return nil, err
		}
		d, err := a.Descriptor()
		if err != nil {
			return nil, err
		}
		span := transport.RemoteSpan(s.o.Comm.Remote(from.Rank, d), devices.Offset(a.MemOff), devices.Size(a.N))
		var moved objects.Moved
		if read {
			moved, err = f.CopyOut(ctx, a.Off, span)
		} else {
			moved, err = f.CopyIn(ctx, span, objects.Write{Off: a.Off, Append: a.Append})
		}
		return &proto.MoveAnswer{N: moved.N, Off: moved.Off, Size: f.Size(), Path: string(moved.Path)}, err
	}
}
