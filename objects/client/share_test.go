package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// once is the connection of a daemon for one request, after it has received that.
type once struct {
	*net.UnixConn

	channel *frames.Channel
	id      uint64
}

// reply sends an answer with descriptors, of which some are announced.
func (o *once) reply(kind frames.Kind, value any, announced int, files ...*os.File) error {
	text, err := json.Marshal(value)
	if err == nil && len(files) > 0 {
		err = o.channel.Send(o.id, files)
	}
	if err != nil {
		return err
	}
	b := append(frames.BeginReply(nil, kind, announced, o.id), text...)
	if err = frames.Finish(b, 0); err == nil {
		_, err = o.Write(b)
	}
	return err
}

// refuse sends an error.
func (o *once) refuse(code string) error {
	b := frames.AppendFailure(frames.Begin(nil, frames.KindFailure, 0, o.id), frames.Failure{Code: code, Text: "no"})
	err := frames.Finish(b, 0)
	if err == nil {
		_, err = o.Write(b)
	}
	return err
}

// serveOnce is a daemon for one request: it calls answer when it has received that, and then keeps the connection open until the
// client closes it.
func serveOnce(t *testing.T, answer func(o *once) error) *client.Client {
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

func accept(l *net.UnixListener, answer func(o *once) error) error {
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	if _, err = http.ReadRequest(in); err != nil {
		return err
	}
	channel, theirs, err := frames.NewChannel()
	if err != nil {
		return err
	}
	defer func() { _, _ = channel.Close(), theirs.Close() }()
	const head = "HTTP/1.1 101 Switching Protocols\r\n\r\n"
	hello := frames.AppendHello(frames.Begin([]byte(head), frames.KindHello, 0, 0), frames.Hello{Session: "name", Calls: 1})
	rights, err := frames.Rights([]*os.File{theirs})
	if err = errors.Join(err, frames.Finish(hello, len(head))); err != nil {
		return err
	}
	if _, _, err = c.WriteMsgUnix(hello, rights, nil); err != nil {
		return err
	}
	request := make([]byte, frames.HeaderSize)
	if _, err = io.ReadFull(in, request); err != nil {
		return err
	}
	h, err := frames.ParseHeader(request)
	if err == nil {
		_, err = in.Discard(int(h.Size))
	}
	if err == nil && h.Descriptors > 0 {
		var files []*os.File
		files, err = channel.Receive(h.ID, int(h.Descriptors), nil, 0)
		adminapi.CloseAll(files)
	}
	if err == nil {
		err = answer(&once{UnixConn: c, channel: channel, id: h.ID})
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, in) // until the client closes it
	}
	return err
}

func exported(offset devices.Offset, size devices.Size) share.Memory {
	first := 0
	return share.Memory{Family: "sim", Size: size, Pieces: []share.Piece{
		{Kind: devices.HandleMemfd, FD: &first, Offset: offset, Size: size},
	}}
}

func TestExportTakesWhatWasAskedForAlone(t *testing.T) {
	kit.Check(t)
	memory := kit.Memfd(t, 1, 100)
	for name, answer := range map[string]func(o *once) error{
		"fewer than announced": func(o *once) error { return o.reply(frames.KindPart, exported(0, 10), 1) },
		"more than announced":  func(o *once) error { return o.reply(frames.KindPart, exported(0, 10), 1, memory, memory) },
		"two":                  func(o *once) error { return o.reply(frames.KindPart, exported(0, 10), 2, memory, memory) },
		"no memory":            func(o *once) error { return o.reply(frames.KindPart, struct{}{}, 1, memory) },
		"one that is not held": func(o *once) error { return o.reply(frames.KindReply, exported(0, 10), 1, memory) },
		"a failure":            func(o *once) error { return o.refuse(adminapi.CodeForbidden) },
	} {
		if e, err := serveOnce(t, answer).Export(t.Context(), memory, ""); err == nil {
			t.Errorf("%s: got %+v", name, e)
		} else if client.IsForbidden(err) != (name == "a failure") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswersOfAnotherKind(t *testing.T) {
	kit.Check(t)
	memory := kit.Memfd(t, 1, 100)
	for name, answer := range map[string]func(o *once) error{
		"a list":      func(o *once) error { return o.reply(frames.KindReply, []int{1}, 0) },
		"descriptors": func(o *once) error { return o.reply(frames.KindReply, struct{}{}, 1, memory) },
		"lines": func(o *once) error {
			_, err := o.Write(frames.Begin(nil, frames.KindLast, 0, o.id))
			return err
		},
		"no frame": func(o *once) error {
			_, err := o.Write([]byte("\xff\xff\xff\xff{}"))
			return errors.Join(err, o.CloseWrite())
		},
		"nothing": func(o *once) error { return o.CloseWrite() },
	} {
		if err := serveOnce(t, answer).EndExports(t.Context(), memory); err == nil {
			t.Errorf("%s: taken for an answer", name)
		}
	}
}

// A later daemon reports more than this client knows.
func TestAnswersMayHaveMoreFields(t *testing.T) {
	kit.Check(t)
	c := serveOnce(t, func(o *once) error {
		return o.reply(frames.KindReply, map[string]any{"family": "sim", "size": 4, "news": 1, "pieces": []any{}}, 0)
	})
	if m, err := c.Handle(t.Context(), kit.Memfd(t, 1, 1), "", 0); err != nil || m.Size != 4 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestTheContextEndsTheWait(t *testing.T) {
	kit.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := serveOnce(t, func(*once) error {
		cancel()
		return nil
	})
	if _, err := c.Export(ctx, kit.Memfd(t, 1, 1), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	short, cancel2 := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel2()
	c = serveOnce(t, func(*once) error { return nil })
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
		c := serveOnce(t, func(o *once) error { return o.reply(frames.KindPart, exported(offset, n), 1, memory) })
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
	c := serveOnce(t, func(o *once) error { return o.CloseWrite() })
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
