package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// framesAsked reports whether a request asks for a session with frames of this version. other is another version that it asks for
// instead, cut to a length that can be repeated in an error.
func framesAsked(h http.Header) (ours bool, other string) {
	const longest = 40
	family := strings.TrimRight(frames.Protocol, "0123456789")
	for name := range strings.SplitSeq(h.Get("Upgrade"), ",") {
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case name == frames.Protocol:
			return true, ""
		case strings.HasPrefix(name, family):
			other = name[:min(len(name), longest)]
		}
	}
	return false, other
}

// refuses answers a request for a session that is invalid, or asks for another version of frames. inFrames is true for a session with frames.
func (s *Server) refuses(w http.ResponseWriter, r *http.Request) (inFrames, refused bool) {
	inFrames, other := framesAsked(r.Header)
	switch {
	case r.ContentLength != 0:
		s.answer(w, nil, fmt.Errorf("%w: a request for a session must not have a body", errInvalid))
	case other != "":
		w.Header().Set("Upgrade", frames.Protocol)
		writeError(w, http.StatusUpgradeRequired, adminapi.CodeUnsupported, fmt.Sprintf(
			"this daemon speaks %s, and not %s; use a client of the daemon's version, or hmcfs upgrade", frames.Protocol, other))
	default:
		return inFrames, false
	}
	return false, true
}

// session serves a session from beginning to end: the session ends when the connection of the
// request ends, in either direction. The response names the session and then stays open; after
// an upgrade the connection carries frames.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	inFrames, refused := s.refuses(w, r)
	if refused {
		return
	}
	one, err := s.sessions.begin(c, r.Header.Get(adminapi.SessionHeader))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.sessions.leave(one)
	attend, ended, lasts := s.attend, s.sendEnded, ""
	if inFrames {
		// Once its connection is taken over, the client can't be told that there are no descriptors for it.
		channel, theirs, full := newChannel()
		if full != nil {
			s.answer(w, nil, full)
			return
		}
		defer func() { _ = channel.Close() }() // what was not received is closed
		defer func() { _ = theirs.Close() }()  // a session that does not begin
		attend = func(ctx context.Context, c *conn, one *session) error {
			return s.attendFrames(ctx, c, one, channel, theirs)
		}
		ended = s.sendFrameEnded
		if one.lasting = s.opts.Continues > 0; one.lasting {
			lasts = one.id
		}
	}
	client, err := s.opts.Keyed.Begin(callerOf(c.peer), lasts)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	if err = s.sessions.start(one, client, c.trusted); err != nil {
		s.answer(w, nil, errors.Join(err, client.Close()))
		return
	}
	s.opts.Calls.count(1)
	defer s.opts.Calls.count(-1)
	// From here on only this function reads from the connection, so that its end is not
	// missed.
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.sessions.close(one)
		s.answer(w, nil, errors.Join(fmt.Errorf("take the connection over: %w", err), client.Close()))
		return
	}
	defer func() { _ = c.Close() }()
	if buffered.Reader.Buffered() > 0 {
		err = fmt.Errorf("%w: bytes before the session began", errInvalid)
	} else {
		err = attend(r.Context(), c, one)
	}
	if err != nil {
		s.opts.Logger.Info("session ended abnormally", zap.Error(err), zap.Int("uid", one.uid))
	}
	if err = s.endSession(context.WithoutCancel(r.Context()), one); err != nil {
		s.opts.Logger.Warn("session left resources behind", zap.Error(err), zap.Int("uid", one.uid))
	}
	_ = ended(c) // a client that has disconnected does not need it
}

// newChannel returns the ends of a session's channel.
//
// Errors: errFilesOpen.
func newChannel() (*frames.Channel, *os.File, error) {
	channel, theirs, err := frames.NewChannel()
	return channel, theirs, filesOpen(err)
}

// attend sends the name of a session and returns when it must end.
func (s *Server) attend(ctx context.Context, c *conn, one *session) error {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: " + linesType + "\r\nConnection: close\r\n\r\n"
	if err := s.sendLine(c, head, adminapi.SessionLine{Session: one.id}); err != nil {
		return err
	}
	return one.read(c, func() error { return s.hold(ctx, c) })
}

// hold returns when the client closes the connection, which the kernel also does when the
// client is killed, or when the server ends.
func (s *Server) hold(ctx context.Context, c *conn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// The client sends nothing more: anything received ends the wait too.
	var one [1]byte
	_, err := c.Read(one[:])
	if err == nil {
		return fmt.Errorf("%w: bytes after the request", errInvalid)
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// read runs a function that reads the connection that holds the session until it ends, which the
// end of the server makes it do.
func (one *session) read(c *conn, receive func() error) error {
	over := make(chan error, 1)
	go func() { over <- receive() }()
	select {
	case err := <-over:
		return err
	case <-one.end:
		_ = c.CloseRead() // which ends the read, even if it begins later
		return <-over
	}
}

// sendEnded sends the last line of a session.
func (s *Server) sendEnded(c *conn) error {
	return s.sendLine(c, "", adminapi.SessionLine{Ended: true})
}

// sendLine sends a line on the connection that holds a session.
func (s *Server) sendLine(c *conn, head string, line adminapi.SessionLine) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err = c.SetWriteDeadline(time.Now().Add(s.opts.Handshake)); err != nil {
		return err
	}
	_, err = c.Write(append(append([]byte(head), text...), '\n'))
	return err
}

// lastAnswers bounds the time for the answers to a session's last calls.
const lastAnswers = 5 * time.Second

// endSession closes a session's client and returns when its last call has been answered or
// abandoned.
func (s *Server) endSession(ctx context.Context, one *session) error {
	s.sessions.close(one)
	one.stop()
	one.files.interrupt()
	err := one.client.Close()
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	if awaitGroup(ctx, &one.calls) != nil {
		// The client does not read them.
		s.sessions.cut(one)
		one.calls.Wait()
	}
	one.files.end()
	return err
}

// call serves a call of a session.
func (s *Server) call(name adminapi.Verb, do verb) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r)
		one, err := s.sessions.enter(c, r.Header.Get(adminapi.SessionHeader))
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		defer s.sessions.exit(c, one)
		q, taken, err := s.readCall(w, r, one.user)
		if err == nil {
			begun, out := time.Now(), answer{to: newLines(w)}
			err = do(r.Context(), one.client, q, &out)
			s.opts.Calls.record(c.peer, name, q, begun, out.keysFailed, err)
		}
		one.user.memory.Release(taken)
		if err != nil {
			s.answer(w, nil, err)
		}
	}
}

const (
	// decoded is the most memory, in bytes, that a byte of an encoded call may need once it
	// is decoded; sparseCall enforces that. Up to manyValues values of a call may exceed
	// it.
	decoded    = 8
	manyValues = 100_000
	// bodyLimit bounds the time to receive the body of a call.
	bodyLimit = time.Minute
)

// readCall reads a call. taken is the memory of the user that it has reserved, also if it
// fails.
func (s *Server) readCall(w http.ResponseWriter, r *http.Request, u *user) (q *adminapi.Call, taken int64, err error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyLimit)) // connections of this server support deadlines
	n := r.ContentLength
	switch {
	case n < 0:
		return nil, 0, fmt.Errorf("%w: a call must have a Content-Length", hetero.ErrInvalid)
	case n > adminapi.MaxCall:
		return nil, 0, fmt.Errorf("%w: a call of %d bytes, at most %d", hetero.ErrInvalid, n, adminapi.MaxCall)
	case decoded*n > u.most:
		s.opts.Refusals.add(boundCallBytes)
		return nil, 0, fmt.Errorf("%w: a call of %d bytes, at most %d for this user", hetero.ErrInvalid, n, u.most/decoded)
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyLimit)
	defer cancel()
	if err = u.memory.Acquire(ctx, decoded*n); err != nil {
		s.opts.Refusals.add(boundCallBytes)
		return nil, 0, fmt.Errorf("%w: the calls of this user use too much memory: %w", hetero.ErrBusy, err)
	}
	taken = decoded * n
	data, err := readBody(r)
	if err == nil {
		// From now on the server watches for the end of the connection, for which there is
		// no deadline.
		err = control.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, taken, fmt.Errorf("%w: the call was not received: %w", hetero.ErrInvalid, err)
	}
	q = new(adminapi.Call)
	if err = sparseCall(data); err == nil && n > 0 {
		err = adminapi.Unmarshal(data, q)
	}
	if err != nil {
		return nil, taken, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	}
	// The call may take long, and from now on needs no more than this.
	if keep := weight(q); keep < taken {
		u.memory.Release(taken - keep)
		taken = keep
	}
	return q, taken, nil
}

// readBody reads a body of known length, including its end.
func readBody(r *http.Request) ([]byte, error) {
	data := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, data); err != nil {
		return nil, err
	}
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errInvalid, err)
	}
	return data, nil
}

// weight estimates the memory that a call uses: once for the call, and once more for its
// execution.
func weight(q *adminapi.Call) int64 {
	const str, list, blob = 16, 48, 24
	n := 0
	for _, key := range q.Keys {
		n += str + len(key)
	}
	for _, l := range q.Lists {
		n += list + len(l.Device) + blob*len(l.Blobs)
	}
	return int64(2 * n)
}

// sparseCall refuses a call with very many values that would need much more memory than
// their encoding.
func sparseCall(data []byte) error {
	values := bytes.Count(data, []byte{','})
	if values > manyValues && values*decoded > len(data) {
		return fmt.Errorf("%w: %d values in %d bytes", errInvalid, values, len(data))
	}
	return nil
}
