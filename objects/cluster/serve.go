package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// serverOptions describes a server. All fields but Owner, Served and Left are required.
type serverOptions struct {
	Store *objects.Store
	Comm  *comm.Communicator
	// Self returns our own record; Cluster is the cluster's name.
	Self    func() members.Record
	Cluster string
	Squash  Squash
	Owner   *uint32
	// ReadOnly refuses changes.
	ReadOnly bool
	AttrTTL  time.Duration
	Log      *zap.Logger
	Count    *counters
	// Notify sends a message without an answer to a peer; see rpc.Endpoint.
	Notify func(wire.Rank, rpc.Method, []byte) (bool, error)
	// Met is called with the record that a node has sent.
	Met func(members.Record)
	// Served is called with the changes that requests have made here; it may be nil. It must
	// not block.
	Served func(objects.Notice)
	// Pull reads a file of a third node into one of this node.
	Pull func(ctx context.Context, dst *objects.File, ask *proto.PullAsk) (objects.Moved, error)
	// Pause is the time for which the files of a held node that has died stay open, and Pauses reports
	// whether a node has died rather than left.
	Pause  time.Duration
	Pauses func(wire.Rank) bool
	// Elsewhere records which files other nodes have open; nil for nobody.
	Elsewhere *Elsewhere
	// Left is called when a session has ended, before its files are closed; it may be nil.
	Left func(ClientSession)
}

// server answers requests about the tree of this node. Its methods may be called from any
// goroutine.
type server struct {
	o    serverOptions
	push *pusher
	// closing is closed when close begins.
	closing chan struct{}
	// unlisten ends the notices of the store.
	unlisten func()
	// work counts goroutines that close waits for.
	work sync.WaitGroup
	mu   sync.Mutex
	// +checklocks:mu
	sessions map[rpc.Caller]*servedSession
	// handle is the last handle number assigned. It starts at a random number, so that a
	// handle of an earlier run, or of another session, never names another file.
	// +checklocks:mu
	handle uint64
}

func newServer(o serverOptions) *server {
	s := &server{o: o, push: newPusher(o.AttrTTL), sessions: map[rpc.Caller]*servedSession{}, closing: make(chan struct{})}
	var start [8]byte
	_, _ = rand.Read(start[:]) // never fails
	s.handle = binary.BigEndian.Uint64(start[:])
	s.unlisten = o.Store.OnNotice(s.push.notice)
	return s
}

// handlers returns the handlers of the server's methods.
func (s *server) handlers() map[rpc.Method]rpc.Handler {
	return map[rpc.Method]rpc.Handler{
		proto.MethodHello: s.hello,

		proto.MethodLookup:  answerUser(s, s.lookup),
		proto.MethodAttr:    answerUser(s, s.attr),
		proto.MethodReadDir: answerUser(s, s.readDir),
		proto.MethodCreate:  answerUser(s, s.create),
		proto.MethodLink:    answerUser(s, s.link),
		proto.MethodRemove:  answerUser(s, s.remove),
		proto.MethodRename:  answerUser(s, s.rename),

		proto.MethodSetAttr:     answerUser(s, s.setAttr),
		proto.MethodGetXattr:    answerUser(s, s.getXattr),
		proto.MethodListXattr:   answerUser(s, s.listXattr),
		proto.MethodSetXattr:    answerUser(s, s.setXattr),
		proto.MethodRemoveXattr: answerUser(s, s.removeXattr),
		proto.MethodStatFS:      answerUser(s, s.statFS),

		proto.MethodCreateOpen: answer(s, s.createOpen),

		proto.MethodOpen:     answerUser(s, s.open),
		proto.MethodClose:    answer(s, s.closeHandle),
		proto.MethodSync:     answer(s, s.sync),
		proto.MethodRead:     answer(s, s.read),
		proto.MethodWrite:    answer(s, s.write),
		proto.MethodAllocate: answer(s, s.allocate),
		proto.MethodSeek:     answer(s, s.seek),
		proto.MethodCopy:     answer(s, s.copy),
		proto.MethodPull:     answerUser(s, s.pull),

		proto.MethodSums: answer(s, s.sums),
	}
}

// protect replaces the handlers of all methods that change anything, if the node permits no changes.
// MethodOpen refuses to open for writing, without which nothing writes to a file.
func (s *server) protect(all map[rpc.Method]rpc.Handler) {
	if !s.o.ReadOnly {
		return
	}
	for _, m := range []rpc.Method{
		proto.MethodCreate, proto.MethodLink, proto.MethodRemove, proto.MethodRename, proto.MethodSetAttr,
		proto.MethodSetXattr, proto.MethodRemoveXattr, proto.MethodCreateOpen, proto.MethodDropKey, proto.MethodExpireKey,
	} {
		all[m] = func(context.Context, rpc.Caller, []byte) ([]byte, error) { return nil, s.frozen() }
	}
}

// frozen returns the error of a change where none is permitted.
//
// Errors: EROFS.
func (s *server) frozen() error {
	return fmt.Errorf("node %s permits no changes; mount it there without -o ro: %w", s.o.Self().Name, syscall.EROFS)
}

// answer makes a handler of a function that answers one type of request in a session. A nil
// answer has no body.
func answer[Q any](s *server, fn func(context.Context, *servedSession, *Q) (any, error)) rpc.Handler {
	return func(ctx context.Context, from rpc.Caller, body []byte) ([]byte, error) {
		g, err := s.session(from)
		if err != nil {
			return nil, err
		}
		var question Q
		if err = proto.Decode(body, &question); err != nil {
			return nil, err
		}
		s.o.Count.answers.Add(1)
		reply, err := fn(ctx, g, &question)
		if err != nil || reply == nil {
			return nil, err
		}
		return proto.Encode(reply)
	}
}

// answerUser is answer for a request on behalf of a user. fn receives the user with its ids on
// this node.
func answerUser[Q any, P interface {
	*Q
	Caller() proto.Cred
}](s *server, fn func(context.Context, *servedSession, User, *Q) (any, error),
) rpc.Handler {
	return answer(s, func(ctx context.Context, g *servedSession, q *Q) (any, error) {
		u, err := s.user(P(q).Caller())
		if err != nil {
			return nil, err
		}
		return fn(ctx, g, u, q)
	})
}

// session returns the session of a request.
//
// Errors: errNoHello.
func (s *server) session(from rpc.Caller) (*servedSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.sessions[from]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%v: %w", from.Rank, errNoHello)
}

// hello starts a session. It may be repeated.
//
// Errors: ErrVersion; ErrDenied for a node that claims another node's name.
func (s *server) hello(_ context.Context, from rpc.Caller, body []byte) ([]byte, error) {
	var h proto.Hello
	if err := proto.Decode(body, &h); err != nil {
		return nil, err
	}
	if h.Version != proto.Version || h.Cluster != s.o.Cluster {
		return nil, fmt.Errorf("the peer has version %d and cluster %q, this node has version %d and cluster %q: %w",
			h.Version, h.Cluster, proto.Version, s.o.Cluster, ErrVersion)
	}
	record, err := recordOf(from.Rank, h.Record)
	if err != nil {
		return nil, err
	}
	self, err := json.Marshal(s.o.Self())
	if err != nil {
		return nil, fmt.Errorf("encode the record of this node: %w", err)
	}
	s.mu.Lock()
	if s.sessions[from] == nil {
		s.sessions[from] = &servedSession{from: from, server: s, held: record.Held, gone: make(chan struct{})}
	}
	s.mu.Unlock()
	s.o.Count.answers.Add(1)
	s.o.Met(record)
	return proto.Encode(&proto.Welcome{Version: proto.Version, Record: self})
}

// recordOf decodes the record that a peer has sent. A name belongs to one rank, and the rank
// is authenticated.
//
// Errors: ErrVersion for an invalid record; ErrDenied.
func recordOf(rank wire.Rank, text []byte) (members.Record, error) {
	var r members.Record
	err := json.Unmarshal(text, &r)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return r, fmt.Errorf("invalid record of %v: %w: %w", rank, ErrVersion, err)
	}
	if r.Name.Rank() != uint32(rank) {
		return r, fmt.Errorf("%v wrongly claims to be node %s: %w", rank, r.Name, ErrDenied)
	}
	return r, nil
}

// ended releases the resources of a session. It does not wait.
func (s *server) ended(from rpc.Caller) {
	s.mu.Lock()
	g := s.sessions[from]
	delete(s.sessions, from)
	s.mu.Unlock()
	if g != nil {
		handles := g.finish()
		s.work.Go(func() {
			if s.o.Left != nil {
				s.o.Left(ClientSession{g})
			}
			s.releaseAll(g, handles)
		})
	}
}

// releaseAll closes the files of a session that has ended. The programs of a node that pauses still have
// them open, so they stay until it has opened them again.
func (s *server) releaseAll(g *servedSession, handles []*handle) {
	paused := g.held && s.o.Pauses(g.from.Rank)
	files := handles[:0]
	for _, h := range handles {
		if paused && h.end == nil {
			files = append(files, h)
			continue
		}
		g.release(context.Background(), h)
	}
	if len(files) == 0 {
		return
	}
	select {
	case <-time.After(s.o.Pause):
	case <-s.closing:
	}
	for _, h := range files {
		g.release(context.Background(), h)
	}
}

// close ends the remaining sessions. No handler runs any more.
func (s *server) close() {
	s.unlisten()
	close(s.closing)
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.sessions))
	s.mu.Unlock()
	for _, from := range left {
		s.ended(from)
	}
	s.push.stop()
	s.work.Wait()
}

func usageOf(d *objects.DeviceStatus) proto.StatFSAnswer {
	return proto.StatFSAnswer{
		Device: string(d.Info.Name), Total: uint64(d.Usage.Total),
		Free: uint64(d.Usage.Free), Used: uint64(d.Usage.Used),
	}
}

// inode returns an inode by its number. Publications cannot be accessed this way: they are
// received by their keys.
//
// Errors: ErrStale; ErrDenied.
func (s *server) inode(ctx context.Context, ino uint64) (objects.Attr, error) {
	a, err := s.o.Store.Attr(ctx, metadata.Ino(ino))
	if isGone(err) {
		return a, fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err == nil && (a.Ino == metadata.PublishIno || a.Parent == metadata.PublishIno) {
		err = fmt.Errorf("inode %d is published and can't be accessed by number: %w", ino, ErrDenied)
	}
	return a, err
}

// folder is inode for a directory in which the user needs the permissions want.
//
// Errors: those of inode; metadata.ErrNotDir; ErrDenied.
func (s *server) folder(ctx context.Context, u User, ino uint64, want metadata.Mode) (objects.Attr, error) {
	a, err := s.inode(ctx, ino)
	if err == nil && !a.IsDir() {
		err = fmt.Errorf("inode %d: %w", ino, metadata.ErrNotDir)
	}
	if err == nil {
		err = u.Need(&a, want)
	}
	return a, err
}
