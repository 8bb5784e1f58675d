package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// Options describe a holder.
type Options struct {
	// Listener accepts the connections of daemons. Serve closes it. Required.
	Listener *net.UnixListener
	// Stop is closed when the holder shall end as soon as no daemon owns it; nil is never.
	Stop <-chan struct{}
	// Pause is the time between the first and the second start in a row of daemons that do not
	// stay; it doubles with each. Default 50 ms.
	Pause time.Duration
	// OOM is the oom_score_adj of the daemons that the holder starts; empty leaves it.
	OOM string
	// Logger gets deaths and restarts; nil is silent.
	Logger *zap.Logger
}

// Status is the state of a holder.
type Status struct {
	// PID is the holder's process, Owner that of the daemon that owns it; 0 if there is none.
	PID   int `json:"pid"`
	Owner int `json:"owner"`
	// Protocol is the one of the program that the holder runs, perhaps an older one than its daemon.
	Protocol uint64 `json:"protocol"`
	// Kept counts the descriptors that it keeps.
	Kept int `json:"kept"`
	// Deaths counts the daemons that have died, and LastDeath is the time of the last one.
	Deaths    int       `json:"deaths"`
	LastDeath time.Time `json:"last_death,omitzero"`
	// GaveUp is set once no daemon is started any more.
	GaveUp bool `json:"gave_up"`
}

// mountPrefix begins the names of the descriptors that keep the mount waiting for a daemon.
const mountPrefix = "mount/"

// server is the state of the holder.
type server struct {
	log   *zap.Logger
	pause time.Duration
	// oom is the daemons' oom_score_adj; empty if it is this process's.
	oom string
	// over is closed when the holder is to end.
	over chan struct{}
	once sync.Once

	mu sync.Mutex
	// +checklocks:mu
	kept map[string]*os.File
	// owner is nil if no daemon owns the holder.
	// +checklocks:mu
	owner *session
	// start starts the daemon again; nil until one was ready.
	// +checklocks:mu
	start *Start
	// next is tried first; nil for start.
	// +checklocks:mu
	next *Start
	// ended is set when the holder is to end.
	// +checklocks:mu
	ended bool
	// stopping is set once no daemon is to be started any more.
	// +checklocks:mu
	stopping bool
	// owned is closed and replaced when a daemon becomes the owner.
	// +checklocks:mu
	owned chan struct{}
	// +checklocks:mu
	status Status
	// served is the process of the last daemon that was ready.
	// +checklocks:mu
	served int
	// +checklocks:mu
	tries tries
	// last is closed when the last daemon that the holder has started is gone; nil before there was one.
	//
	// +checklocks:mu
	last chan struct{}
}

// session is one connection.
type session struct {
	conn *net.UnixConn
	pid  int
	// ready is the time at which the daemon began to serve; zero before. server.mu guards it.
	ready time.Time
}

// Serve keeps descriptors until a daemon ends it in order.
func Serve(ctx context.Context, o Options) error {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &server{
		log: o.Logger.Named("holder"), over: make(chan struct{}), kept: map[string]*os.File{},
		oom: o.OOM, pause: cmp.Or(o.Pause, firstPause), owned: make(chan struct{}), status: Status{PID: os.Getpid(), Protocol: Protocol},
	}
	go s.accept(o.Listener)
	unowned := time.AfterFunc(firstOwner, s.endUnowned)
	defer unowned.Stop()
	select {
	case <-s.over:
	case <-o.Stop:
		s.stop()
		<-s.over
	case <-ctx.Done():
	}
	err := o.Listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.kept {
		err = errors.Join(err, f.Close())
	}
	return err
}

// acceptPause and mostAcceptPause are the first and the longest of the times between attempts to accept a connection, when one has failed.
const acceptPause, mostAcceptPause = 10 * time.Millisecond, time.Second

// accept serves each connection of this user's, or root's, processes.
func (s *server) accept(l *net.UnixListener) {
	pause := time.Duration(0)
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: the next attempt may work
			if pause == 0 {
				s.log.Warn("can't accept a connection", zap.Error(err))
			}
			pause = min(max(2*pause, acceptPause), mostAcceptPause)
			<-time.After(pause)
			continue
		}
		pause = 0
		pid, err := peer(conn)
		if err != nil {
			s.log.Warn("refused a process that is not this user's", zap.Error(err))
			_ = conn.Close()
			continue
		}
		go s.serve(&session{conn: conn, pid: pid})
	}
}

// peer returns the process at the other end, if it may use the holder.
func peer(c *net.UnixConn) (pid int, err error) {
	var cred *unix.Ucred
	err = owner.Control(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case cred.Uid != 0 && int(cred.Uid) != os.Geteuid():
		return 0, fmt.Errorf("process %d of user %d", cred.Pid, cred.Uid)
	}
	return int(cred.Pid), nil
}

// serve answers the requests of one connection.
func (s *server) serve(from *session) {
	buf := make([]byte, maxMessage)
	for {
		m, f, err := receive(from.conn, buf)
		if err != nil {
			break
		}
		if err := s.answer(from, &m, f); err != nil {
			break
		}
	}
	_ = from.conn.Close()
	s.closed(from)
}

// answer answers one request. It owns the descriptor. An error ends the connection.
func (s *server) answer(from *session, m *message, f *os.File) error {
	if f != nil && m.Op != opKeep {
		if err := f.Close(); err != nil {
			return err
		}
	}
	switch m.Op {
	case opStatus:
		return send(from.conn, s.report(), nil)
	case opKept:
		return s.sendKept(from, m.Name)
	case opOwn:
		return reply(from, s.own(from))
	case opKeep:
		return reply(from, s.keep(from, m.Name, f))
	case opDrop:
		return reply(from, s.drop(from, m.Name))
	case opWrite:
		return reply(from, s.write(from, m.Name, m.Data))
	case opReady:
		err := reply(from, s.isReady(from, m.Start))
		s.shrink() // there is little to do from now on
		return err
	case opNext:
		return reply(from, s.follow(from, m.Start))
	case opEnd:
		refusal := s.end(from)
		err := reply(from, refusal)
		if refusal == nil {
			s.finish()
		}
		return err
	}
	return reply(from, fmt.Errorf("unknown request %q", m.Op))
}

func reply(to *session, refusal error) error {
	var m message
	if refusal != nil {
		m.Error = refusal.Error()
	}
	return send(to.conn, &m, nil)
}

func (s *server) report() *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Kept = len(s.kept)
	if s.owner != nil {
		status.Owner = s.owner.pid
	}
	return &message{Status: &status}
}

// mine returns an error unless the session owns the holder.
//
// +checklocks:s.mu
func (s *server) mine(from *session) error {
	if s.owner != from {
		return fmt.Errorf("process %d does not own this holder", from.pid)
	}
	return nil
}

func (s *server) own(from *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errors.New("this holder is ending")
	case s.owner != nil && s.owner != from:
		return fmt.Errorf("the daemon with process ID %d owns this holder", s.owner.pid)
	}
	s.owner = from
	close(s.owned)
	s.owned = make(chan struct{})
	return nil
}

func (s *server) keep(from *session, name string, f *os.File) error {
	switch {
	case f == nil:
		return errors.New("there is no descriptor to keep")
	case name == "" || len(name) > maxName:
		return errors.Join(fmt.Errorf("the name of a descriptor has %d bytes; use 1 to %d", len(name), maxName), f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mine(from); err != nil {
		return errors.Join(err, f.Close())
	}
	before := s.kept[name]
	s.kept[name] = f
	if before != nil {
		return before.Close()
	}
	return nil
}

func (s *server) drop(from *session, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mine(from); err != nil {
		return err
	}
	return s.dropLocked(name)
}

// +checklocks:s.mu
func (s *server) dropLocked(name string) error {
	f := s.kept[name]
	if f == nil {
		return nil
	}
	delete(s.kept, name)
	return f.Close()
}

// write writes to a descriptor for the owner, on a connection that is not the owner's own, since that
// may take as long as the kernel likes. What the kernel says of it is not reported.
func (s *server) write(from *session, name string, data []byte) error {
	s.mu.Lock()
	owns, f, ended := s.owner != nil && s.owner.pid == from.pid, s.kept[name], s.ended
	s.mu.Unlock()
	switch {
	case ended:
		return errors.New("this holder is ending")
	case !owns:
		return fmt.Errorf("process %d does not own this holder", from.pid)
	case f == nil:
		return fmt.Errorf("there is no descriptor %q", name)
	}
	if _, err := f.Write(data); err != nil {
		s.log.Debug("a write for the daemon failed", zap.String("descriptor", name), zap.Error(err))
	}
	return nil
}

// sendKept sends the descriptors whose names begin with prefix, one in each message.
func (s *server) sendKept(to *session, prefix string) error {
	s.mu.Lock()
	err := s.mine(to)
	var found []string
	for name := range s.kept {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return reply(to, err)
	}
	for _, name := range found {
		// Only the owner drops descriptors, and it waits for this answer.
		s.mu.Lock()
		f := s.kept[name]
		s.mu.Unlock()
		if err := send(to.conn, &message{Name: name, More: true}, f); err != nil {
			return err
		}
	}
	return reply(to, nil)
}

func (s *server) isReady(from *session, start *Start) error {
	if start == nil || start.Path != "" && len(start.Args) == 0 {
		return errors.New("the request does not say how to start the daemon again")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mine(from); err != nil {
		return err
	}
	s.start, s.next, s.served, from.ready, s.status.GaveUp = start, nil, from.pid, time.Now(), false
	return nil
}

func (s *server) follow(from *session, next *Start) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := s.mine(from); {
	case err != nil:
		return err
	case next == nil || next.Path == "" || len(next.Args) == 0:
		return errors.New("the request does not say how to start the daemon that follows")
	case s.start == nil || s.start.Path == "":
		return errors.New("another process starts the daemon of this mount again")
	}
	s.next = next
	return nil
}

func (s *server) end(from *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mine(from); err != nil {
		return err
	}
	s.ended = true
	return nil
}

// finish ends the holder.
func (s *server) finish() { s.once.Do(func() { close(s.over) }) }

// firstOwner bounds the time until the daemon that has started a holder owns it.
const firstOwner = 30 * time.Second

// endUnowned ends a holder that nobody has come to own.
func (s *server) endUnowned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil && s.start == nil && s.status.Deaths == 0 {
		s.ended = true
		s.finish()
	}
}

// stop ends the holder as soon as no daemon owns it.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	if s.owner == nil {
		s.ended = true
		s.finish()
	}
}

// closed is called when a connection has ended. That of the owner, unless it has ended the holder,
// means that the daemon has died.
func (s *server) closed(from *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != from || s.ended {
		return
	}
	s.owner = nil
	s.status.Deaths++
	s.status.LastDeath = time.Now()
	if s.stopping || s.start == nil {
		// The first daemon has failed, or the holder is to end.
		s.ended = true
		s.finish()
		return
	}
	s.log.Warn("the daemon has died", zap.Int("daemon", from.pid), zap.Int("deaths", s.status.Deaths))
	s.tries.countDeath(from.ready)
	if from.ready.IsZero() {
		s.forgetNext()
	}
	if s.start.Path == "" {
		go s.await(s.owned)
		return
	}
	go s.revive(s.owned)
}

// forgetNext goes back to the program that has served.
//
// +checklocks:s.mu
func (s *server) forgetNext() {
	if s.next != nil {
		s.log.Error("the program that was to follow does not serve; the one before is started again", zap.String("program", s.next.Path))
		s.next = nil
	}
}
