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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// TestDiesWhileAsked makes requests to daemons that die, and are started again: before they greet, and before they answer. What must not
// be done twice is not asked of a second one that has greeted.
func TestDiesWhileAsked(t *testing.T) {
	for name, c := range map[string]struct {
		ask func(context.Context, *Client, *os.File) error
		// once is set if the first death of a daemon that was asked is returned.
		once bool
		// kind is that of the first answer.
		kind frames.Kind
	}{
		"watch": {kind: frames.KindPart, ask: func(ctx context.Context, c *Client, _ *os.File) error {
			w, err := c.Watch(ctx)
			if err != nil {
				return err
			}
			return w.Close()
		}},
		"export": {kind: frames.KindPart, ask: func(ctx context.Context, c *Client, f *os.File) error {
			e, err := c.Export(ctx, f, "")
			if err != nil {
				return err
			}
			return e.Close()
		}},
		"keys": {kind: frames.KindReply, ask: func(ctx context.Context, c *Client, _ *os.File) error {
			_, err := c.Keys(ctx, "", false)
			return err
		}},
		"verify": {kind: frames.KindReply, ask: func(ctx context.Context, c *Client, f *os.File) error {
			_, err := c.Verify(ctx, []*os.File{f})
			return err
		}},
		"bind": {kind: frames.KindReply, ask: func(ctx context.Context, c *Client, f *os.File) error {
			_, err := c.Bind(ctx, f, share.Memory{})
			return err
		}},
		"collect": {once: true, ask: func(ctx context.Context, c *Client, f *os.File) error {
			_, err := c.Collect(ctx, adminapi.CollectRequest{}, []*os.File{f}, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			socket := dyingByHand(t, c.kind, &asked, 1)
			holdByHand(t, socket)
			err := c.ask(t.Context(), New(socket), os.Stdin)
			want := int32(2)
			if c.once {
				want = 1
			}
			if (err != nil) != c.once || c.once && !IsDeath(err) || asked.Load() != want {
				t.Errorf("%v after %d of %d requests", err, asked.Load(), want)
			}
		})
	}
}

// TestDiesOfARequest makes a request that each daemon dies of.
func TestDiesOfARequest(t *testing.T) {
	var asked atomic.Int32
	socket := dyingByHand(t, frames.KindReply, &asked, 100)
	holdByHand(t, socket)
	if _, err := New(socket).Verify(t.Context(), []*os.File{os.Stdin}); !errors.Is(err, ErrNoDaemon) || asked.Load() != mostDied {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

// TestDaemonOfAnotherVersion opens sessions with daemons that know no frames of this version: an old one begins a session without
// frames, whose answer does not end, and a new one says so.
func TestDaemonOfAnotherVersion(t *testing.T) {
	for name, answer := range map[string]string{
		"old": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"session\":\"1\"}\n\r\n",
		"new": "HTTP/1.1 426 Upgrade Required\r\nUpgrade: hmcfs-frames-99\r\nContent-Length: 43\r\n\r\n" + `{"error":"speaks 99","code":"unsupported"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			socket := daemonByHand(t, func(_ *http.Request, conn *net.UnixConn, in *bufio.Reader) error {
				_, err := conn.Write([]byte(answer))
				_, rerr := in.ReadByte() // until the client closes it
				return errors.Join(err, rerr)
			})
			holdByHand(t, socket)
			_, err := OpenSession(t.Context(), socket)
			if !errors.Is(err, hetero.ErrUnsupported) || !strings.Contains(err.Error(), "speak") {
				t.Error(err)
			}
		})
	}
}

// TestSocketIsReplaced opens sessions while the daemon that follows has removed the socket of the one before, and has not made its own.
func TestSocketIsReplaced(t *testing.T) {
	socket := daemonByHand(t, func(_ *http.Request, conn *net.UnixConn, in *bufio.Reader) error {
		return errors.Join(greetByHand(conn), answerByHand(conn, in, false))
	})
	if err := os.Rename(socket, socket+"~"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSession(t.Context(), socket); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("where nobody starts a daemon: %v", err)
	}
	holdByHand(t, socket)
	opened := make(chan error, 1)
	go func() {
		s, err := OpenSession(t.Context(), socket)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("opened without a socket: %v", err)
	case <-time.After(100 * time.Millisecond): // of 2 s
	}
	if err := os.Rename(socket+"~", socket); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// dyingByHand is a daemon that dies before it greets the first connection, and before it answers the first requests. It counts requests,
// and answers the others.
func dyingByHand(t *testing.T, kind frames.Kind, asked *atomic.Int32, deaths int32) (socket string) {
	t.Helper()
	var connections atomic.Int32
	return daemonByHand(t, func(_ *http.Request, conn *net.UnixConn, in *bufio.Reader) error {
		if connections.Add(1) == 1 {
			return nil
		}
		if err := greetByHand(conn); err != nil {
			return err
		}
		h, err := nextByHand(in)
		if err != nil || asked.Add(1) <= deaths {
			return err
		}
		b := append(frames.BeginReply(nil, kind, 0, h.ID), `{"pieces":[]}`...)
		if err = frames.Finish(b, 0); err == nil {
			_, err = conn.Write(b)
		}
		if err = errors.Join(err, answerByHand(conn, in, false)); errors.Is(err, unix.EPIPE) {
			return nil // the client does not wait for the end
		}
		return err
	})
}

// holdByHand is the holder of a daemon, which starts it again.
func holdByHand(t *testing.T, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(filepath.Dir(socket), adminapi.HolderSocket), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_, rerr := conn.Read(make([]byte, 100))
			_, werr := io.WriteString(conn, `{"status":{"gave_up":false}}`)
			if err = errors.Join(rerr, werr, conn.Close()); err != nil {
				t.Error(err)
			}
		}
	}()
}
