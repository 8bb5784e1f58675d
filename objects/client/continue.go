package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// errAway reports that a call was cancelled while there was no daemon.
var errAway = errors.New("the daemon has died, and the next one is not there yet")

// registration is memory that the session registers again with the next daemon.
type registration struct {
	question adminapi.Register
	// files are duplicates of the caller's descriptors.
	files []*os.File
}

// remember keeps what is needed to register memory again, unless the daemon that has registered it
// is gone: generation is that of the daemon. The session owns the files if it returns true.
func (s *Session) remember(id hetero.MemoryID, r registration, generation int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.back != nil || s.generation != generation {
		return false
	}
	s.registered[id] = r
	s.guardLocked()
	return true
}

// guardLocked has the end of the daemon noticed also while nobody makes calls: the next daemon must know what the session
// has. Sessions that have nothing do without, and so without a descriptor more.
//
// +checklocks:s.mu
func (s *Session) guardLocked() {
	if !s.guarded {
		s.guarded = true
		go s.guard(s.link.Load())
	}
}

// unremember ends what remember has kept.
func (s *Session) unremember(id hetero.MemoryID) {
	s.mu.Lock()
	r := s.registered[id]
	delete(s.registered, id)
	s.mu.Unlock()
	adminapi.CloseAll(r.files)
}

// reopening says how a file is opened again with the next daemon.
type reopening struct {
	name  string
	flags uint32
	ino   uint64
	// had are the ranges that were read of a file of publish/, which is received once all of it was.
	had []frames.Range
}

// daemon returns the generation of the daemon.
func (s *Session) daemon() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// opened keeps what is needed to open a file again. It returns false if the daemon of a generation, which had
// been there before the file was opened, has died meanwhile.
func (s *Session) opened(f *File, flags uint32, a *frames.FileAnswer, generation int) (bool, error) {
	if s.continues == 0 {
		return true, nil
	}
	st, err := frames.ParseStat(a.Data)
	if err != nil {
		return false, f.fault("open", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.back != nil || s.generation != generation {
		return false, nil
	}
	s.guardLocked()
	s.files[f.handle] = reopening{
		name: f.name, flags: flags &^ (unix.O_CREAT | unix.O_EXCL | unix.O_TRUNC | unix.O_CLOEXEC), ino: st.Ino,
	}
	return true, nil
}

// hadRead keeps that bytes of a file of publish/ were read: the next daemon must know which.
func (s *Session) hadRead(handle uint64, r frames.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.files[handle]; ok {
		f.had = frames.AddRange(f.had, r)
		s.files[handle] = f
	}
}

// forgetFile ends what opened has kept.
func (s *Session) forgetFile(handle uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, handle)
}

// openAgain opens the files of the session with the next daemon, under the numbers that they have had. Calls on those that
// it does not find fail with EBADF.
func (s *Session) openAgain(conn *frames.Conn, in *receiver) error {
	s.mu.Lock()
	files := maps.Clone(s.files)
	for handle, f := range files {
		f.had = slices.Clone(f.had)
		files[handle] = f
	}
	s.mu.Unlock()
	for handle, f := range files {
		id := s.number()
		frame, err := frames.AppendFileCall(frames.Begin(nil, frames.KindFile, uint8(frames.FileOpen), id), &frames.FileCall{
			Name: f.name, Flags: f.flags, Handle: handle, Size: f.ino,
		})
		if err != nil {
			return err
		}
		frame = frames.AppendRanges(frame, f.had)
		frames.SetAgain(frame)
		if _, err = exchanged(conn, in, frame, id); err != nil {
			return err
		}
	}
	return nil
}

// number returns the number of a new call.
func (s *Session) number() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

// duplicates returns duplicates of descriptors.
func duplicates(files []*os.File) ([]*os.File, error) {
	out := make([]*os.File, 0, len(files))
	for _, f := range files {
		fd := -1
		err := owner.Control(f, func(own int) (err error) {
			fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
			return err
		})
		if err != nil {
			adminapi.CloseAll(out)
			return nil, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
		}
		out = append(out, os.NewFile(uintptr(fd), f.Name()))
	}
	return out, nil
}

// present waits while there is no daemon, and returns the generation of the one that is there.
func (s *Session) present(ctx context.Context) (generation int, err error) {
	for {
		if err = s.ended(); err != nil {
			return 0, err
		}
		s.mu.Lock()
		back := s.back
		generation = s.generation
		s.mu.Unlock()
		if back == nil {
			return generation, nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return 0, hetero.ContextError(ctx.Err())
		}
	}
}

// guard notices the end of a connection that nobody reads.
func (s *Session) guard(conn *frames.Conn) {
	if conn.AwaitEnd() != nil {
		return // the next call notices it
	}
	none := &answer{session: s, came: make(chan struct{}, 1)}
	select {
	case <-s.gone:
	case <-s.role:
		if s.link.Load() != conn { // it was noticed
			s.role <- struct{}{}
			return
		}
		s.readFor(none)
	}
}

// depart begins to look for the next daemon, after the connection has ended with an error. It
// returns false if there will be none. The caller has the role, which becomes that of comeBack.
func (s *Session) depart(cause error) bool {
	if s.continues == 0 || errors.Is(cause, frames.ErrFrame) {
		return false
	}
	if s.ended() != nil {
		return false
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.back = make(chan struct{})
		s.lost <- struct{}{} // there is room: whoever has the role has waited for the one before
	}
	s.mu.Unlock()
	return !closed
}

// continueWith continues the session with the next daemon whenever one has died.
func (s *Session) continueWith(ctx context.Context) {
	for {
		select {
		case <-s.lost:
			s.comeBack(ctx)
		case <-ctx.Done():
			select {
			case <-s.lost: // before Close
				s.comeBack(ctx)
			default:
			}
			return
		}
	}
}

// comeBack continues the session with the next daemon, or ends it. It has the role.
func (s *Session) comeBack(ctx context.Context) {
	s.sending.Lock()
	s.cut = true
	s.sending.Unlock()
	s.leaveCancelled()
	err := s.client.retry(ctx, s.continues, s.arrive)
	s.mu.Lock()
	back := s.back
	s.back = nil
	s.generation++
	s.mu.Unlock()
	defer close(back)
	if err != nil {
		s.over()
		s.role <- struct{}{}
		return
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	s.cut = false
	s.role <- struct{}{} // answers are read from here on: the daemon may wait for that
	s.askAgainLocked()
}

// arrive makes one attempt to continue the session: it connects, registers all memory again, and has
// the daemon give back the keys that consist of it. Only the greeting has a limit: the daemon takes the name of the session once, so
// that another attempt, after one that was given up, would be refused.
func (s *Session) arrive(ctx context.Context) error {
	hello, err := s.client.greeted(ctx, s.id)
	if err != nil {
		return err
	}
	conn := hello.conn
	next := receiver{in: hello.in, of: s.answerTo, channel: conn.Descriptors}
	stop := context.AfterFunc(ctx, func() { conn.Shut(unix.SHUT_RDWR) })
	defer stop()
	if err = s.registerAgain(conn, &next); err == nil {
		err = s.reclaim(conn, &next)
	}
	if err == nil {
		err = s.openAgain(conn, &next)
	}
	if err != nil {
		_ = conn.Close() // the failure is returned
		return err
	}
	old := s.link.Swap(conn)
	s.in = next
	_ = old.Close() // it has ended
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded {
		go s.guard(conn)
	}
	return nil
}

// registerAgain registers all memory of the session with the next daemon. Memory that it refuses is lost: calls with
// it fail from now on.
func (s *Session) registerAgain(conn *frames.Conn, in *receiver) error {
	s.mu.Lock()
	all := maps.Clone(s.registered)
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		r := all[id]
		r.question.Number = id
		text, err := json.Marshal(r.question)
		if err != nil {
			return err
		}
		number := s.number()
		frame, err := requestOf(number, frames.RequestRegister, text, r.files)
		if err == nil && len(r.files) > 0 {
			err = conn.Descriptors.Send(number, r.files)
		}
		if err == nil {
			_, err = exchanged(conn, in, frame, number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reclaim asks for the keys and publications of the session.
func (s *Session) reclaim(conn *frames.Conn, in *receiver) error {
	id := s.number()
	frame, err := frames.AppendCall(frames.Begin(nil, frames.KindCall, frames.VerbNumber(adminapi.VerbContinue), id), &adminapi.Call{})
	if err != nil {
		return err
	}
	p, err := exchanged(conn, in, frame, id)
	if err == nil && p.kind != frames.KindLast {
		err = cmp.Or(s.failureOf(p.body), error(errAnswer))
	}
	return err
}

// exchanged makes a call on a connection on which nothing else is in progress.
func exchanged(conn *frames.Conn, in *receiver, frame []byte, id uint64) (part, error) {
	err := frames.Finish(frame, 0)
	if err == nil {
		err = conn.Write(frame)
	}
	for err == nil {
		h, p, failed := in.next()
		switch {
		case errors.Is(failed, os.ErrDeadlineExceeded): // it was interrupted, for the reader of an answer
		case failed != nil:
			return part{}, failed
		case h.ID == id:
			return p, nil
		case h.Kind == frames.KindEnded:
			return part{}, errAnswer
		}
	}
	return part{}, err
}

// leaveCancelled ends the calls that were cancelled: there is no daemon to use their memory.
func (s *Session) leaveCancelled() {
	for _, a := range s.inProgress() {
		if a.left.Load() {
			a.fail(errAway)
		}
	}
}

// inProgress returns the calls in progress, in the order in which they began.
func (s *Session) inProgress() []*answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.answers))
	all := make([]*answer, len(ids))
	for i, id := range ids {
		all[i] = s.answers[id]
	}
	return all
}

// askAgainLocked sends the calls again that the daemon before has not answered.
//
// +checklocks:s.sending
func (s *Session) askAgainLocked() {
	for _, a := range s.inProgress() {
		if !a.sent || a.isAnswered() {
			continue
		}
		if a.once {
			a.fail(errReplaced)
			continue
		}
		if a.left.Load() {
			a.fail(errAway)
			continue
		}
		if err := a.repeat(s); err != nil {
			a.fail(err)
		}
	}
}

// greeted opens a connection of a session, in a limited time: of a new one, or with a name of one of a daemon before.
func (c *Client) greeted(ctx context.Context, before string) (greeting, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return greeting{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	begin := &first{conn: conn}
	from := &source{begin}
	in := bufio.NewReaderSize(from, sessionBuffer)
	hello, err := greet(conn, in, before)
	if !stop() {
		err = errors.Join(hetero.ContextError(ctx.Err()), err)
	}
	if err == nil && len(begin.files) != 1 {
		err = fmt.Errorf("%w: %d descriptors came with the greeting; this process's limit of open files may be too low", errAnswer, len(begin.files))
	}
	if err != nil {
		adminapi.CloseAll(begin.files)
		_ = conn.Close() // the failure is returned
		return greeting{}, err
	}
	channel, err := frames.AdoptChannel(begin.files[0])
	if err != nil {
		_ = conn.Close() // the failure is returned
		return greeting{}, err
	}
	if hello.conn, err = frames.Adopt(conn, channel, sendLimit); err != nil {
		return greeting{}, err
	}
	from.Reader, hello.in = hello.conn, in
	return hello, nil
}
