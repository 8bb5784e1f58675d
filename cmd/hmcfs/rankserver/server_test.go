package rankserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// rank is the other end of a server: the only rank of its job.
type rank struct {
	t     *testing.T
	conn  *net.UnixConn
	ended chan error
}

// serve starts a server for a job of one rank.
func serve(t *testing.T) *rank {
	t.Helper()
	kit.Check(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		ends[i] = c.(*net.UnixConn) //nolint:errcheck,forcetypeassert // it is a Unix socket
	}
	env := map[string]string{"HMCFS_RANK": "0", "HMCFS_WORLD": "1", "HMCFS_JOB_DIR": t.TempDir()}
	r := &rank{t: t, conn: ends[0], ended: make(chan error, 1)}
	go func() {
		err := Serve(context.Background(), ends[1], func(name string) string { return env[name] })
		_ = ends[1].Close()
		r.ended <- err
	}()
	t.Cleanup(func() { _ = r.conn.Close() })
	if h, body := r.next(); h.Kind != frames.KindHello || string(body[4:]) != Protocol {
		t.Fatalf("greeting %+v %q", h, body)
	}
	return r
}

// next reads a frame of the server.
func (r *rank) next() (frames.Header, []byte) {
	r.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		r.t.Fatal(err)
	}
	head := make([]byte, frames.HeaderSize)
	if _, err := io.ReadFull(r.conn, head); err != nil {
		r.t.Fatal(err)
	}
	h, err := frames.ParseHeader(head)
	if err != nil {
		r.t.Fatal(err)
	}
	body := make([]byte, h.Size)
	if _, err := io.ReadFull(r.conn, body); err != nil {
		r.t.Fatal(err)
	}
	return h, body
}

// write sends a frame.
func (r *rank) write(kind frames.Kind, v Verb, id uint64, body []byte) {
	r.t.Helper()
	b := append(frames.Begin(nil, kind, uint8(v), id), body...)
	if err := frames.Finish(b, 0); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// call makes a call and returns its value, or the code of its failure.
func (r *rank) call(v Verb, id uint64, c Call) (value uint64, code string) {
	r.t.Helper()
	r.write(frames.KindCall, v, id, c.Append(nil))
	h, body := r.next()
	if h.ID != id {
		r.t.Fatalf("answer %+v to call %d", h, id)
	}
	if h.Kind == frames.KindFailure {
		f, err := frames.ParseFailure(body)
		if err != nil {
			r.t.Fatal(err)
		}
		return 0, f.Code
	}
	err := frames.ParseLines(body, 1, nil, func(l adminapi.Line) error { value = uint64(l.Size); return nil })
	if err != nil {
		r.t.Fatal(err)
	}
	return value, ""
}

// end waits for the end of the server.
func (r *rank) end() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("the server does not end")
		return nil
	}
}

// TestCalls makes calls with invalid arguments, each of which fails alone.
func TestCalls(t *testing.T) {
	r := serve(t)
	memory, code := r.call(VerbAlloc, 1, Call{Number: 4096})
	if memory == 0 || code != "" {
		t.Fatalf("%d, %q", memory, code)
	}
	all := Range{Memory: memory, Count: 1024}
	for name, c := range map[string]struct {
		verb Verb
		call Call
		want string
	}{
		"verb 0":         {0, Call{}, "invalid"},
		"verb 200":       {200, Call{}, "invalid"},
		"no bytes":       {VerbAlloc, Call{}, "invalid"},
		"too many bytes": {VerbAlloc, Call{Number: math.MaxUint64}, "invalid"},
		"no memory":      {VerbSend, Call{Type: elem.Float32, Source: Range{Memory: 99, Count: 1}}, "invalid"},
		"beyond it":      {VerbSend, Call{Type: elem.Float64, Source: all}, "invalid"},
		"overflow":       {VerbSend, Call{Type: elem.Uint8, Source: Range{memory, math.MaxUint64, 2}}, "invalid"},
		"many elements":  {VerbRecv, Call{Type: elem.Float64, Result: Range{memory, 8, math.MaxUint64}}, "invalid"},
		"type 0":         {VerbAllReduce, Call{Op: elem.Sum, Source: all, Result: all}, "invalid"},
		"op 9":           {VerbAllReduce, Call{Type: elem.Float32, Op: 9, Source: all, Result: all}, "invalid"},
		"rank 7":         {VerbSend, Call{Type: elem.Float32, Peer: 7, Source: all}, "invalid"},
		"root 7":         {VerbBroadcast, Call{Type: elem.Float32, Peer: 7, Source: all, Result: all}, "invalid"},
		"rank 2^32-1":    {VerbTag, Call{Peer: math.MaxUint32}, "invalid"},
		"no window":      {VerbPut, Call{Type: elem.Float32, Source: all}, "invalid"},
		"close none":     {VerbCloseWindow, Call{}, "invalid"},
		"free none":      {VerbFree, Call{Source: Range{Memory: 99}}, "invalid"},
		"free nothing":   {VerbFree, Call{}, "invalid"},
		"late":           {VerbRecv, Call{Type: elem.Float32, Result: all, Timeout: time.Millisecond}, "timeout"},
	} {
		if _, got := r.call(c.verb, 2, c.call); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, code = r.call(VerbAllReduce, 3, Call{Type: elem.Float32, Op: elem.Sum, Source: all, Result: all}); code != "" {
		t.Errorf("afterwards: %q", code)
	}
	// A receive that nobody answers ends early, and its memory can be freed while it waits.
	r.write(frames.KindCall, VerbRecv, 4, (&Call{Type: elem.Float32, Result: all}).Append(nil))
	r.write(frames.KindCancel, 0, 4, nil)
	r.write(frames.KindCancel, 0, 77, nil)
	if h, body := r.next(); h.ID != 4 || !strings.Contains(string(body), "interrupted") {
		t.Errorf("%+v %q", h, body)
	}
	if _, code = r.call(VerbFree, 5, Call{Source: Range{Memory: memory}}); code != "" {
		t.Errorf("free: %q", code)
	}
	if err := r.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if h, _ := r.next(); h.Kind != frames.KindEnded {
		t.Errorf("last frame %+v", h)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestHostile checks that frames which break the protocol end the server, and that it ends with calls
// in progress.
func TestHostile(t *testing.T) {
	recv := (&Call{Type: elem.Uint8, Number: 5, Result: Range{Memory: 1, Count: 1}}).Append(nil)
	huge := frames.Begin(nil, frames.KindCall, byte(VerbSend), 1)
	binary.LittleEndian.PutUint32(huge, frames.MaxBody+1)
	for name, c := range map[string]struct {
		bytes []byte
		wrong bool
	}{
		"garbage":       {[]byte(strings.Repeat("GET / ", 10)), true},
		"a huge call":   {huge, true},
		"a short call":  {frameOf(frames.KindCall, VerbSend, recv[:10]), true},
		"the server's":  {frameOf(frames.KindLast, 0, nil), true},
		"a number":      {append(frameOf(frames.KindCall, VerbRecv, recv), frameOf(frames.KindCall, VerbRecv, recv)...), true},
		"half a header": {huge[:5], false},
		"half a call":   {frameOf(frames.KindCall, VerbRecv, recv)[:40], false},
		"a call":        {frameOf(frames.KindCall, VerbRecv, recv), false},
		"nothing":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t)
			if _, code := r.call(VerbAlloc, 9, Call{Number: 4096}); code != "" {
				t.Fatal(code)
			}
			if _, err := r.conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if !c.wrong {
				_ = r.conn.Close()
			}
			if err := r.end(); errors.Is(err, frames.ErrFrame) != c.wrong {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// frameOf returns frame 1, without checking it.
func frameOf(kind frames.Kind, v Verb, body []byte) []byte {
	b := append(frames.Begin(nil, kind, byte(v), 1), body...)
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	return b
}
