package admin_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	guards "github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// framesByHand is a framed session without the library.
type framesByHand struct {
	t    testing.TB
	conn *net.UnixConn
	in   *bufio.Reader
	id   string
	most int // calls in progress
	// channel is the one that came with the greeting, in which first has it.
	channel *frames.Channel
	first   []*os.File
}

// Read implements io.Reader, for descriptors as well.
func (f *framesByHand) Read(b []byte) (int, error) {
	var none *guards.Guard
	in, err := none.Receive(f.conn, 0, b)
	f.first = append(f.first, in.Files...)
	return max(in.N, 0), err
}

func openFrames(t testing.TB, socket string) *framesByHand {
	t.Helper()
	dialled, err := net.Dial("unix", socket)
	fatal(t, err)
	conn, _ := dialled.(*net.UnixConn)
	t.Cleanup(func() { _ = conn.Close() })
	fatal(t, conn.SetDeadline(time.Now().Add(sessionPatience)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", adminapi.PathSession, frames.Protocol)
	fatal(t, err)
	f := &framesByHand{t: t, conn: conn}
	f.in = bufio.NewReader(f)
	resp, err := http.ReadResponse(f.in, nil)
	fatal(t, err)
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != frames.Protocol {
		t.Fatalf("answered %s, %v", resp.Status, resp.Header)
	}
	h, body := f.next()
	hello, err := frames.ParseHello(body)
	if h.Kind != frames.KindHello || err != nil || len(hello.Session) != 32 {
		t.Fatalf("greeted with %+v, %+v, %v", h, hello, err)
	}
	f.id, f.most = hello.Session, int(hello.Calls)
	if len(f.first) != 1 {
		t.Fatalf("%d descriptors came with the greeting", len(f.first))
	}
	f.channel, err = frames.AdoptChannel(f.first[0])
	fatal(t, err)
	t.Cleanup(func() { _ = f.channel.Close() })
	return f
}

// write sends bytes as they are.
func (f *framesByHand) write(b []byte) {
	f.t.Helper()
	_, err := f.conn.Write(b)
	fatal(f.t, err)
}

// next reads a frame.
func (f *framesByHand) next() (frames.Header, []byte) {
	f.t.Helper()
	h, body, err := f.read()
	fatal(f.t, err)
	return h, body
}

func (f *framesByHand) read() (frames.Header, []byte, error) {
	head := make([]byte, frames.HeaderSize)
	if _, err := io.ReadFull(f.in, head); err != nil {
		return frames.Header{}, nil, err
	}
	h, err := frames.ParseHeader(head)
	if err != nil {
		return h, nil, err
	}
	body := make([]byte, h.Size)
	_, err = io.ReadFull(f.in, body)
	return h, body, err
}

// callOf returns the frame of a call.
func callOf(t testing.TB, verb adminapi.Verb, id uint64, q adminapi.Call) []byte {
	t.Helper()
	b, err := frames.AppendCall(frames.Begin(nil, frames.KindCall, frames.VerbNumber(verb), id), &q)
	fatal(t, err)
	fatal(t, frames.Finish(b, 0))
	return b
}

func cancelOf(id uint64) []byte { return frames.Begin(nil, frames.KindCancel, 0, id) }

// TestOtherVersions asks for frames of versions of which this daemon has none, one, or that are no version of frames.
func TestOtherVersions(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	for name, c := range map[string]struct {
		asked  string
		status int
	}{
		"an older one":            {"hmcfs-frames-2", http.StatusUpgradeRequired},
		"a newer one":             {"hmcfs-frames-99", http.StatusUpgradeRequired},
		"one that begins with it": {frames.Protocol + "0", http.StatusUpgradeRequired},
		"several":                 {"hmcfs-frames-2, hmcfs-frames-x", http.StatusUpgradeRequired},
		"long":                    {"hmcfs-frames-" + strings.Repeat("9", 9000), http.StatusUpgradeRequired},
		"this one among others":   {"hmcfs-frames-99, " + strings.ToUpper(frames.Protocol) + ", hmcfs-frames-2", http.StatusSwitchingProtocols},
		"of something else":       {"websocket", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", r.socket)
			fatal(t, err)
			defer func() { _ = conn.Close() }()
			fatal(t, conn.SetDeadline(time.Now().Add(sessionPatience)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", adminapi.PathSession, c.asked)
			fatal(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			fatal(t, err)
			if resp.StatusCode != c.status {
				t.Fatalf("answered %s", resp.Status)
			}
			if c.status != http.StatusUpgradeRequired {
				return
			}
			var said adminapi.Error
			fatal(t, json.NewDecoder(resp.Body).Decode(&said))
			told := strings.Contains(said.Text, "speaks "+frames.Protocol) && len(said.Text) < 300
			if said.Code != adminapi.CodeUnsupported || !told || resp.Header.Get("Upgrade") != frames.Protocol {
				t.Errorf("told %+v, %v", said, resp.Header)
			}
		})
	}
}

// TestFramesInAnyOrder has several calls in progress, of which the first is stuck.
func TestFramesInAnyOrder(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	all := callOf(t, adminapi.VerbMGet, 1, adminapi.Call{Keys: []string{keyStuck, "a"}})
	for id := uint64(2); id < 40; id++ {
		all = append(all, callOf(t, adminapi.VerbExist, id, adminapi.Call{Keys: []string{"a", keyMissing}})...)
	}
	f.write(all)
	answered := map[uint64]bool{}
	for range 38 {
		h, body := f.next()
		var exists []bool
		fatal(t, frames.ParseLines(body, 2, nil, func(l adminapi.Line) error {
			exists = append(exists, l.Exists)
			return nil
		}))
		if h.Kind != frames.KindLast || answered[h.ID] || !slices.Equal(exists, []bool{true, false}) {
			t.Errorf("answered %+v, %v", h, exists)
		}
		answered[h.ID] = true
	}
	if len(answered) != 38 || answered[1] {
		t.Errorf("%d calls are answered: %v", len(answered), answered)
	}
	f.write(cancelOf(1))
	h, body := f.next()
	var codes []string
	fatal(t, frames.ParseLines(body, 2, nil, func(l adminapi.Line) error {
		codes = append(codes, l.Code)
		return nil
	}))
	if h.ID != 1 || h.Kind != frames.KindLast || !slices.Equal(codes, []string{"interrupted", ""}) {
		t.Errorf("the cancelled call: %+v, %v", h, codes)
	}
	// The end of what the client sends is the end of the session, after the last answers.
	f.write(callOf(t, adminapi.VerbMGet, 1, adminapi.Call{Keys: []string{keyStuck}}))
	kit.Eventually(t, sessionPatience, func() bool { return r.last().waiting() == 1 })
	fatal(t, f.conn.CloseWrite())
	if h, body = f.next(); h.ID != 1 || !strings.Contains(string(body), "closed") {
		t.Errorf("the call under way: %+v, %q", h, body)
	}
	if h, _ = f.next(); h.Kind != frames.KindEnded {
		t.Errorf("the session ends with %+v", h)
	}
	if _, _, err := f.read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestFramedSessionIsOneOverHTTP makes a call over HTTP in the session of a connection of frames.
func TestFramedSessionIsOneOverHTTP(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	h := &byHand{t: t, socket: r.socket}
	if code, text := h.ask(adminapi.VerbExist, f.id, `{"keys":["a"]}`); code != http.StatusOK || !strings.Contains(text, `"exists":true`) {
		t.Errorf("%d %s", code, text)
	}
	fatal(t, f.conn.Close())
	kit.Eventually(t, sessionPatience, func() bool {
		code, _ := h.ask(adminapi.VerbExist, f.id, `{"keys":["a"]}`)
		return code == http.StatusForbidden
	})
}

// TestWrongFrames sends frames that no proper client sends. Those with a wrong body are refused;
// those after which nothing can be trusted end the session. Other sessions are not affected.
func TestWrongFrames(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	good := callOf(t, adminapi.VerbExist, 5, adminapi.Call{Keys: []string{"a"}})
	changed := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	sized := func(n uint32) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint32(b, n)
		return b
	}
	for name, c := range map[string]struct {
		send []byte
		ends bool
	}{
		"kind 0":             {changed(4, 0), true},
		"kind of the daemon": {changed(4, byte(frames.KindHello)), true},
		"kind 200":           {changed(4, 200), true},
		"padding":            {changed(7, 1), true},
		"size":               {sized(frames.MaxBody + 1), true},
		"largest size":       {sized(1<<32 - 1), true},
		"cancel with a body": {append(frames.Header{Kind: frames.KindCancel, Size: 1}.Append(nil), 0), true},
		"HTTP":               {[]byte("GET /v1/status HTTP/1.1\r\nHost: h\r\n\r\n"), true},
		"verb 0":             {changed(5, 0), false},
		"verb 200":           {changed(5, 200), false},
		"bits":               {changed(frames.HeaderSize, 0xff), false},
		"rule":               {changed(frames.HeaderSize+1, 9), false},
		"keys":               {changed(frames.HeaderSize+7, 0xff), false},
		"lists":              {changed(frames.HeaderSize+8, 1), false},
		"no body":            {frames.Header{Kind: frames.KindCall, Verb: 1, ID: 5}.Append(nil), false},
		"key too long":       {changed(frames.HeaderSize+40, 2), false},
	} {
		f := openFrames(t, r.socket)
		behind := r.last()
		f.write(c.send)
		if c.ends {
			if h, _, err := f.read(); err == nil && h.Kind != frames.KindEnded {
				t.Errorf("%s: answered %+v", name, h)
			}
			if _, _, err := f.read(); err == nil {
				t.Errorf("%s: the session goes on", name)
			}
		} else {
			h, body := f.next()
			fault, err := frames.ParseFailure(body)
			if h.Kind != frames.KindFailure || h.ID != 5 || err != nil || fault.Code != "invalid" {
				t.Errorf("%s: %+v, %+v, %v", name, h, fault, err)
			}
			f.write(good)
			if h, _ = f.next(); h.Kind != frames.KindLast || h.ID != 5 {
				t.Errorf("%s: the next call: %+v", name, h)
			}
			fatal(t, f.conn.Close())
		}
		kit.Eventually(t, sessionPatience, func() bool { return behind.ended() == 1 })
	}
}

// TestFramedCallsAreBounded has more calls in progress than a session may have, and two with one
// number.
func TestFramedCallsAreBounded(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	stuck := adminapi.Call{Keys: []string{keyStuck}}
	refused := map[string]int{}
	const more = 500
	for id := range uint64(f.most + more) {
		f.write(callOf(t, adminapi.VerbMGet, id+1, stuck))
	}
	f.write(callOf(t, adminapi.VerbMGet, 1, stuck))
	for range more + 1 {
		h, body := f.next()
		fault, err := frames.ParseFailure(body)
		fatal(t, err)
		if h.Kind != frames.KindFailure {
			t.Fatalf("answered %+v", h)
		}
		refused[fault.Code]++
	}
	if f.most != 128 || refused["busy"] != more || refused["invalid"] != 1 {
		t.Errorf("at most %d, refused: %v", f.most, refused)
	}
	fatal(t, f.conn.Close())
	behind := r.last()
	kit.Eventually(t, sessionPatience, func() bool { return behind.ended() == 1 && behind.waiting() == 0 })
	r.uid.Store(0)
	if f = openFrames(t, r.socket); f.most < 1000 {
		t.Errorf("root may have %d calls in progress", f.most)
	}
}

// TestFramedCallIsTooLarge sends a call that is too large for another user after one that was not,
// whose memory is used again.
func TestFramedCallIsTooLarge(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	small := callOf(t, adminapi.VerbMGet, 1, adminapi.Call{Keys: []string{"a"}, Lists: listOf(1)})
	large := listOf(1)
	large[0].Blobs = slices.Repeat(large[0].Blobs, 30<<20/(2*24))
	for range 3 {
		f.write(small)
		if h, _ := f.next(); h.Kind != frames.KindLast {
			t.Fatalf("answered %+v", h)
		}
		go func() {
			_, _ = f.conn.Write(callOf(t, adminapi.VerbMGet, 2, adminapi.Call{Keys: []string{"a"}, Lists: large}))
		}()
		h, body := f.next()
		fault, err := frames.ParseFailure(body)
		if h.Kind != frames.KindFailure || err != nil || fault.Code != "invalid" || !strings.Contains(fault.Text, "at most") {
			t.Fatalf("answered %+v, %+v, %v", h, fault, err)
		}
	}
}

// TestFramedCallPanics: a fault of the daemon ends the session in which it occurs, and no other.
func TestFramedCallPanics(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	other, f := openFrames(t, r.socket), openFrames(t, r.socket)
	behind := r.last()
	f.write(callOf(t, adminapi.VerbMGet, 1, adminapi.Call{Keys: []string{keyPanics}}))
	if h, _, err := f.read(); err == nil {
		t.Errorf("answered %+v", h)
	}
	kit.Eventually(t, sessionPatience, func() bool { return behind.ended() == 1 })
	other.write(callOf(t, adminapi.VerbExist, 1, adminapi.Call{Keys: []string{"a"}}))
	if h, _ := other.next(); h.Kind != frames.KindLast {
		t.Errorf("the other session answers %+v", h)
	}
}

// TestFramedSessionIsKilled ends the connection after every prefix of a call and its
// cancellation: each session ends, and nothing stays behind.
func TestFramedSessionIsKilled(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	all := append(callOf(t, adminapi.VerbMGet, 1, adminapi.Call{Keys: []string{keyStuck}}), cancelOf(1)...)
	for n := range len(all) + 1 {
		f := openFrames(t, r.socket)
		behind := r.last()
		f.write(all[:n])
		if n%2 == 0 {
			fatal(t, f.conn.Close())
		} else {
			fatal(t, f.conn.CloseWrite())
		}
		kit.Eventually(t, sessionPatience, func() bool { return behind.ended() == 1 && behind.waiting() == 0 })
	}
}

// TestFramesAreNotRead has a client that sends calls and reads no answer: it is cut off, and the
// server can end.
func TestFramesAreNotRead(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	behind := r.last()
	keys := make([]string, hetero.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%d", keyMissing, i)
	}
	go func() {
		b := callOf(t, adminapi.VerbInfo, 1, adminapi.Call{Keys: keys})
		for id := uint64(1); ; id++ {
			binary.LittleEndian.PutUint64(b[8:], id)
			if _, err := f.conn.Write(b); err != nil {
				return
			}
		}
	}()
	kit.Eventually(t, sessionPatience, func() bool {
		verb, _ := behind.last()
		return verb == "info"
	})
	fatal(t, f.conn.CloseWrite())
	ctx, cancel := context.WithTimeout(t.Context(), sessionPatience)
	defer cancel()
	fatal(t, r.server.EndShares(ctx)) // it does not wait for the client to read
	if behind.ended() != 1 {
		t.Error("the session has not ended")
	}
}

// TestOneClientStopsNoOther has clients that read no answers, send a part of a frame, out-of-band bytes, or descriptors where
// none belong: another session is answered.
func TestOneClientStopsNoOther(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	for name, disturb := range map[string]func(f *framesByHand) error{
		"a part of a header": func(f *framesByHand) error { _, err := f.conn.Write(cancelOf(1)[:3]); return err },
		"a part of a body": func(f *framesByHand) error {
			_, err := f.conn.Write(callOf(t, adminapi.VerbExist, 1, adminapi.Call{Keys: []string{"a"}})[:frames.HeaderSize+1])
			return err
		},
		"out of band": func(f *framesByHand) error {
			raw, err := f.conn.SyscallConn()
			if err != nil {
				return err
			}
			var sent error
			err = raw.Control(func(fd uintptr) { sent = unix.Sendto(int(fd), []byte{1}, unix.MSG_OOB, nil) })
			if errors.Is(sent, unix.EOPNOTSUPP) {
				sent = nil // this kernel has no such bytes here
			}
			return errors.Join(err, sent)
		},
		"descriptors on the stream": func(f *framesByHand) error {
			rights, err := frames.Rights([]*os.File{kit.Memfd(t, 1, 1)})
			if err == nil {
				_, _, err = f.conn.WriteMsgUnix(cancelOf(1)[:3], rights, nil)
			}
			return err
		},
		"refusals that nobody reads": func(f *framesByHand) error {
			if err := f.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			b := callOf(t, "", 1, adminapi.Call{Keys: []string{"a"}})
			for {
				if _, err := f.conn.Write(b); err != nil {
					return nil //nolint:nilerr // the daemon waits for its answers to be read
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fatal(t, disturb(openFrames(t, r.socket)))
			f := openFrames(t, r.socket)
			f.write(callOf(t, adminapi.VerbExist, 9, adminapi.Call{Keys: []string{"a"}}))
			if h, _ := f.next(); h.ID != 9 || h.Kind == frames.KindFailure {
				t.Errorf("answered with %+v", h)
			}
		})
	}
}
