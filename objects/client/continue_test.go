package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// daemonByHand listens at a socket. serve has each connection, after its first request, until it returns.
func daemonByHand(t *testing.T, serve func(r *http.Request, c *net.UnixConn, in *bufio.Reader) error) (socket string) {
	t.Helper()
	kit.Check(t)
	dir, err := os.MkdirTemp("", "hmcfs-client-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	one := func(c *net.UnixConn) {
		defer func() { _ = c.Close() }()
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err == nil {
			err = serve(r, c, in)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("the daemon of the test: %v", err)
		}
	}
	all.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			all.Go(func() { one(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return socket
}

// greetByHand begins a session that continues.
func greetByHand(c *net.UnixConn) error {
	head := "HTTP/1.1 101 Switching Protocols\r\n" + adminapi.ContinuesHeader + ": 60\r\n\r\n"
	b := frames.AppendHello(frames.Begin([]byte(head), frames.KindHello, 0, 0), frames.Hello{Session: "name", Calls: 64})
	if err := frames.Finish(b, len(head)); err != nil {
		return err
	}
	channel, theirs, err := frames.NewChannel()
	if err != nil {
		return err
	}
	rights, err := frames.Rights([]*os.File{theirs})
	if err == nil {
		_, _, err = c.WriteMsgUnix(b, rights, nil)
	}
	return errors.Join(err, theirs.Close(), channel.Close())
}

// answerByHand answers calls with success until the client ends the session: new ones, or those that are asked again.
func answerByHand(c *net.UnixConn, in *bufio.Reader, again bool) error {
	send := func(kind frames.Kind, id uint64) error {
		b := frames.Begin(nil, kind, 0, id)
		if kind == frames.KindFileAnswer {
			b = frames.AppendFileAnswer(b, &frames.FileAnswer{})
		}
		if err := frames.Finish(b, 0); err != nil {
			return err
		}
		_, err := c.Write(b)
		return err
	}
	for {
		h, err := nextByHand(in)
		switch {
		case errors.Is(err, io.EOF):
			return send(frames.KindEnded, 0)
		case h.Again != again:
		case err == nil && h.Kind == frames.KindCall:
			err = send(frames.KindLast, h.ID)
		case err == nil && h.Kind == frames.KindFile:
			err = send(frames.KindFileAnswer, h.ID)
		}
		if err != nil {
			return err
		}
	}
}

// nextByHand reads a frame, without its body.
func nextByHand(in *bufio.Reader) (frames.Header, error) {
	head, err := in.Peek(frames.HeaderSize)
	if err != nil {
		return frames.Header{}, err
	}
	h, err := frames.ParseHeader(head)
	if err == nil {
		_, err = in.Discard(frames.HeaderSize + int(h.Size))
	}
	return h, err
}

func openByHand(t *testing.T, c *Client) *Session {
	t.Helper()
	s, err := c.openSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// servedByHand is a session with a daemon that answers everything with success.
func servedByHand(t *testing.T) *Session {
	t.Helper()
	return openByHand(t, New(daemonByHand(t, func(_ *http.Request, c *net.UnixConn, in *bufio.Reader) error {
		if err := greetByHand(c); err != nil {
			return err
		}
		return answerByHand(c, in, false)
	})))
}

// TestAskAgainBesideCalls asks calls again while others end, and begin with the memory of those that have ended.
func TestAskAgainBesideCalls(t *testing.T) {
	s := servedByHand(t)
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for range 100 {
				_, err := s.results(context.Background(), adminapi.VerbDelete, &adminapi.Call{})
				if i%2 == 0 {
					_, err = s.askFile(context.Background(), &fileAsk{verb: frames.FileSync})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		callers.Wait()
		close(over)
	}()
	askAgain := func() {
		s.sending.Lock()
		defer s.sending.Unlock()
		s.askAgainLocked()
	}
	for {
		select {
		case <-over:
			return
		default:
			askAgain()
		}
	}
}

// TestNotSent begins calls that can't be encoded: they are none to ask again.
func TestNotSent(t *testing.T) {
	s := servedByHand(t)
	for name, send := range map[string]func(a *answer) error{
		"call": func(a *answer) error { return s.sendNew(a, adminapi.VerbDelete, &adminapi.Call{Existing: "none"}) },
		"file": func(a *answer) error {
			return s.sendNewFile(a, &fileAsk{verb: frames.FileStat, call: frames.FileCall{Name: strings.Repeat("n", 1<<16)}})
		},
	} {
		a := s.newAnswer(t.Context())
		if err := send(a); err == nil || a.sent {
			t.Errorf("%s: %v, sent %t", name, err, a.sent)
		}
	}
}

// TestNewWhileAway makes a call while there is no daemon, beside one that a daemon has had: only that one is asked again.
func TestNewWhileAway(t *testing.T) {
	s := servedByHand(t)
	for _, cut := range []bool{false, true} {
		a := s.newAnswer(t.Context())
		a.file = &fileAsk{verb: frames.FileSync}
		setCut(s, cut)
		err := s.sendNewFile(a, a.file)
		setCut(s, false)
		for _, want := range []bool{!cut, true} {
			s.sending.Lock()
			err = errors.Join(err, a.repeat(s))
			if got := s.out[6] == 1; got != want || err != nil {
				t.Errorf("without a daemon %t: sent as one that is asked again: %t, %v", cut, got, err)
			}
			s.sending.Unlock()
		}
	}
}

func setCut(s *Session, cut bool) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.cut = cut
}

// TestLeftWhileAway asks calls again of which one was cancelled.
func TestLeftWhileAway(t *testing.T) {
	s := servedByHand(t)
	var all []*answer
	for _, left := range []bool{true, false} {
		a := s.newAnswer(t.Context())
		if err := s.start(a); err != nil {
			t.Fatal(err)
		}
		a.file, a.sent, a.tried = &fileAsk{verb: frames.FileSync}, true, true
		a.left.Store(left)
		all = append(all, a)
	}
	s.sending.Lock()
	s.askAgainLocked()
	if id := s.out[8]; uint64(id) != all[1].id {
		t.Errorf("call %d was sent last, want %d", id, all[1].id)
	}
	s.sending.Unlock()
	if _, err := all[0].next(); !errors.Is(err, errAway) {
		t.Errorf("the cancelled call: %v", err)
	}
	for _, a := range all {
		s.forget(a)
	}
}

// TestSlowReturn continues a session with a daemon that is busy at first, and then takes longer to give back its keys
// than to greet is allowed. It knows the name of the session once.
func TestSlowReturn(t *testing.T) {
	var attempts atomic.Int32
	late := make(chan struct{})
	socket := daemonByHand(t, func(r *http.Request, c *net.UnixConn, in *bufio.Reader) error {
		switch before := r.Header.Get(adminapi.SessionHeader); {
		case r.Header.Get("Silent") != "":
			_, err := in.Peek(1) // it ends
			return err
		case before == "":
			if err := greetByHand(c); err != nil {
				return err
			}
			_, err := nextByHand(in)
			return err // it dies
		case attempts.Add(1) == 1:
			return refuseByHand(c, adminapi.CodeBusy)
		case attempts.Load() > 2:
			return refuseByHand(c, adminapi.CodeNoSession)
		}
		if err := greetByHand(c); err != nil {
			return err
		}
		h, err := nextByHand(in)
		if err != nil || h.Kind != frames.KindCall || h.Verb != frames.VerbNumber(adminapi.VerbContinue) {
			return fmt.Errorf("a frame %+v, %w", h, err)
		}
		<-late
		b := frames.Begin(nil, frames.KindLast, 0, h.ID)
		if _, err = c.Write(b); err != nil {
			return err
		}
		return answerByHand(c, in, true)
	})
	c := New(socket)
	c.patience = time.Second
	s := openByHand(t, c)
	go func() {
		defer close(late)
		for attempts.Load() < 2 {
			runtime.Gosched()
		}
		if _, err := c.greeted(t.Context(), "\r\nSilent: 1"); !errors.Is(err, hetero.ErrTimeout) {
			t.Errorf("a daemon that does not greet: %v", err)
		}
	}()
	if err := s.listed(t.Context(), adminapi.VerbUnregister, &adminapi.Call{Memory: 1}, func(adminapi.Line) {}); err != nil {
		t.Error(err)
	}
}

// refuseByHand refuses a session.
func refuseByHand(c *net.UnixConn, code string) error {
	text := `{"error":"refused","code":"` + code + `"}`
	_, err := fmt.Fprintf(c, "HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// TestRevives asks holders whether they start a daemon.
func TestRevives(t *testing.T) {
	for name, want := range map[string]struct{ answer, does, known bool }{
		`{"status":{"gave_up":false}}`: {answer: true, does: true, known: true},
		`{"status":{"gave_up":true}}`:  {answer: true, known: true},
		`{"error":"unknown"}`:          {answer: true},
		"no JSON":                      {answer: true},
		"no answer":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			c := New(filepath.Join(t.TempDir(), "s"))
			check := func(what string, does, known bool) {
				t.Helper()
				if d, k := c.revives(t.Context()); d != does || k != known {
					t.Errorf("%s: does %t, known %t; want %t, %t", what, d, k, does, known)
				}
			}
			check("without a holder", false, false)
			l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(filepath.Dir(c.socket), adminapi.HolderSocket), Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			var served sync.WaitGroup
			served.Go(func() {
				if conn, err := l.AcceptUnix(); err == nil {
					_, _ = conn.Read(make([]byte, 100))
					if want.answer {
						_, _ = conn.Write([]byte(name))
					}
					_ = conn.Close()
				}
			})
			check("with one", want.does, want.known)
			served.Wait()
			_ = l.Close()
			check("after its end", false, true)
		})
	}
}

// TestRegisterWithoutDescriptors registers memory while this process can't have the descriptors that it needs for the next daemon: this
// daemon must not know the memory either.
func TestRegisterWithoutDescriptors(t *testing.T) {
	var asked atomic.Int32
	s := openByHand(t, New(daemonByHand(t, func(r *http.Request, c *net.UnixConn, in *bufio.Reader) error {
		if r.URL.Path == adminapi.PathRegister {
			asked.Add(1)
			return nil
		}
		if err := greetByHand(c); err != nil {
			return err
		}
		return answerByHand(c, in, false)
	})))
	free, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	number, err := numberOf(free)
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err = unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	const connections, pieces = 16, 32
	few := before
	few.Cur = uint64(number + 1 + connections)
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = s.PreRegister(t.Context(), hetero.Memory{Share: &share.Memory{}, Files: slices.Repeat([]*os.File{free}, pieces)})
	if lerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); lerr != nil {
		t.Fatal(lerr)
	}
	if !errors.Is(err, unix.EMFILE) || asked.Load() > 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
}
