package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
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
	_, err := c.Write(b)
	return err
}

// answerByHand answers calls with success, once, until the client ends the session.
func answerByHand(c *net.UnixConn, in *bufio.Reader) error {
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
		case h.Again:
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

func openByHand(t *testing.T, socket string) *Session {
	t.Helper()
	s, err := OpenSession(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// servedByHand is a session with a daemon that answers everything with success.
func servedByHand(t *testing.T) *Session {
	t.Helper()
	return openByHand(t, daemonByHand(t, func(_ *http.Request, c *net.UnixConn, in *bufio.Reader) error {
		if err := greetByHand(c); err != nil {
			return err
		}
		return answerByHand(c, in)
	}))
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
