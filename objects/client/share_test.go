package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// serveOnce is a daemon for one request: it calls answer on the connection after the upgrade,
// and then keeps the connection open until the client closes it.
func serveOnce(t *testing.T, answer func(c *net.UnixConn) error) *client.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "hmcfs-client-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- accept(l, answer) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("the daemon of the test: %v", err)
		}
	})
	return client.New(filepath.Join(dir, "s"))
}

func accept(l *net.UnixListener, answer func(c *net.UnixConn) error) error {
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	// The request comes after the 101, so nothing of it is read here.
	if _, err = http.ReadRequest(bufio.NewReader(c)); err != nil {
		return err
	}
	if _, err = fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); err != nil {
		return err
	}
	_, files, err := adminapi.ReadFrame(c)
	adminapi.CloseAll(files)
	if err == nil {
		err = answer(c)
	}
	if err == nil {
		_, _ = c.Read(make([]byte, 1)) // the client closes it
	}
	return err
}

func exported(offset devices.Offset, size devices.Size) *share.Memory {
	first := 0
	return &share.Memory{Family: "sim", Size: size, Pieces: []share.Piece{
		{Kind: devices.HandleMemfd, FD: &first, Offset: offset, Size: size},
	}}
}

func TestExportTakesWhatWasAskedForAlone(t *testing.T) {
	kit.Check(t)
	memory := kit.Memfd(t, 1, 100)
	for name, reply := range map[string]struct {
		r     adminapi.Reply
		files []*os.File
	}{
		"fewer than announced": {adminapi.Reply{Memory: exported(0, 10), Descriptors: 1}, nil},
		"more than announced":  {adminapi.Reply{Memory: exported(0, 10)}, []*os.File{memory}},
		"two":                  {adminapi.Reply{Memory: exported(0, 10), Descriptors: 2}, []*os.File{memory, memory}},
		"no memory":            {adminapi.Reply{Descriptors: 1}, []*os.File{memory}},
		"a failure": {adminapi.Reply{
			Status: 403, Failure: &adminapi.Error{Text: "no", Code: adminapi.CodeForbidden}, Descriptors: 1,
		}, []*os.File{memory}},
	} {
		c := serveOnce(t, func(conn *net.UnixConn) error { return adminapi.WriteFrame(conn, reply.r, reply.files) })
		if e, err := c.Export(t.Context(), memory, ""); err == nil {
			t.Errorf("%s: got %+v", name, e)
		} else if client.IsForbidden(err) != (reply.r.Failure != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswersOfAnotherKind(t *testing.T) {
	kit.Check(t)
	memory := kit.Memfd(t, 1, 100)
	ended := adminapi.Reply{Ended: &adminapi.EndAnswer{Ended: true}}
	answer := func(conn *net.UnixConn) error { return adminapi.WriteFrame(conn, ended, nil) }
	if _, err := serveOnce(t, answer).Bind(t.Context(), memory, share.Memory{}); err == nil {
		t.Error("Bind took the end of exports for its answer")
	}
	if _, err := serveOnce(t, answer).Handle(t.Context(), memory, "", 0); err == nil {
		t.Error("Handle took the end of exports for its answer")
	}
	for name, garbage := range map[string]string{
		"no frame": "\xff\xff\xff\xff{}", "no JSON": "\x00\x00\x00\x02xx", "nothing": "",
	} {
		c := serveOnce(t, func(conn *net.UnixConn) error {
			_, err := conn.Write([]byte(garbage))
			return errors.Join(err, conn.CloseWrite())
		})
		if err := c.EndExports(t.Context(), memory); err == nil {
			t.Errorf("%s was taken for an answer", name)
		}
	}
}

// A later daemon reports more than this client knows.
func TestAnswersMayHaveMoreFields(t *testing.T) {
	kit.Check(t)
	c := serveOnce(t, func(conn *net.UnixConn) error {
		return adminapi.WriteFrame(conn, map[string]any{
			"status": 200, "news": true, "memory": map[string]any{"family": "sim", "size": 4, "news": 1, "pieces": []any{}},
		}, nil)
	})
	if m, err := c.Handle(t.Context(), kit.Memfd(t, 1, 1), "", 0); err != nil || m.Size != 4 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestTheContextEndsTheWait(t *testing.T) {
	kit.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := serveOnce(t, func(*net.UnixConn) error {
		cancel()
		return nil
	})
	if _, err := c.Export(ctx, kit.Memfd(t, 1, 1), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	short, cancel2 := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel2()
	c = serveOnce(t, func(*net.UnixConn) error { return nil })
	if _, err := c.Export(short, kit.Memfd(t, 1, 1), ""); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// The memory of a file may start anywhere in an allocation.
func TestMappingBeginsInAPage(t *testing.T) {
	kit.Check(t)
	const size = 3 * 4096
	for _, offset := range []devices.Offset{0, 1, 4095, 4096, 5000} {
		memory := kit.Memfd(t, 3, size)
		n := devices.Size(size - int(offset))
		c := serveOnce(t, func(conn *net.UnixConn) error {
			return adminapi.WriteFrame(conn, adminapi.Reply{Memory: exported(offset, n), Descriptors: 1}, []*os.File{memory})
		})
		e, err := c.Export(t.Context(), memory, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Map()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Bytes) != int(n) || kit.DiffAt(m.Bytes, 3, int64(offset)) >= 0 {
			t.Errorf("offset %d: %d bytes, other ones", offset, len(m.Bytes))
		}
		m.Bytes[n-1] ^= 0xff
		last := make([]byte, 1)
		if _, err := memory.ReadAt(last, size-1); err != nil || last[0] != m.Bytes[n-1] {
			t.Errorf("offset %d: what is stored is not in the memory", offset)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFindNeedsAMount(t *testing.T) {
	kit.Check(t)
	dir := t.TempDir()
	if _, _, err := client.Find(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := client.Map(t.Context(), dir); !errors.Is(err, client.ErrNotMounted) {
		t.Errorf("no mount: %v", err)
	}
	if _, err := client.Bind(t.Context(), dir, share.Memory{}); !errors.Is(err, client.ErrNotMounted) {
		t.Errorf("no mount: %v", err)
	}
	_, err := client.New(filepath.Join(dir, "s")).Export(t.Context(), kit.Memfd(t, 1, 1), "")
	if !errors.Is(err, client.ErrNoDaemon) || !strings.Contains(err.Error(), dir) {
		t.Errorf("no daemon: %v", err)
	}
}

// TestDaemonEndsMeanwhile kills the daemon after it has received the request: the error says
// that, and does not mention limits.
func TestDaemonEndsMeanwhile(t *testing.T) {
	kit.Check(t)
	c := serveOnce(t, func(c *net.UnixConn) error {
		return c.Close()
	})
	_, err := c.Collect(t.Context(), adminapi.CollectRequest{}, nil, nil)
	if !errors.Is(err, client.ErrNoDaemon) || !strings.Contains(err.Error(), "ended before it answered") || strings.Contains(err.Error(), "too many") {
		t.Errorf("a daemon that was killed: %v", err)
	}
}

// TestForeignListener connects to a socket where another user's process listens.
func TestForeignListener(t *testing.T) {
	dir, err := os.MkdirTemp("", "hmcfs-client-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := net.Listen("unix", filepath.Join(dir, "s")) // it answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	foreign := client.NewOf(l.Addr().String(), os.Geteuid()+1)
	_, err = foreign.Status(t.Context(), false)
	_, watchErr := foreign.Watch(t.Context())
	for _, err := range []error{err, watchErr} {
		if !errors.Is(err, client.ErrForeign) {
			t.Errorf("asked another user: %v", err)
		}
	}
}
