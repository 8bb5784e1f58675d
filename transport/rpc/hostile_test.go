package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// hostile is a rogue peer and an endpoint that calls and serves it.
func hostile(t *testing.T, h *hub, o Options) (*rogue, *Endpoint) {
	t.Helper()
	b := h.endpoint(t, 0, o)
	return h.rogue(t, 1, 0), b
}

// A peer that breaks any rule loses the session.
func TestBrokenRules(t *testing.T) {
	type says = []packet
	for name, c := range map[string]struct {
		// before and after are sent before and after a request to the peer.
		before, after says
	}{
		"malformed":                 {before: says{{op: 9, id: 1}}},
		"answers what was not said": {before: says{{opAnswer, 0, 0, 1, nil}}},
		"fails what was not said":   {after: says{{opFailure, 1, 0, 2, nil}}},
		"begins in the middle":      {after: says{{opMore, 0, 1, 1, []byte("x")}}},
		"begins twice":              {after: says{{opAnswer, 0, 9, 1, []byte("x")}, {opAnswer, 0, 9, 1, []byte("x")}}},
		"leaves a gap":              {after: says{{opAnswer, 0, 9, 1, []byte("x")}, {opMore, 0, 2, 1, []byte("x")}}},
		"says more than announced":  {after: says{{opAnswer, 0, 2, 1, []byte("x")}, {opMore, 0, 1, 1, []byte("xx")}}},
		"asks twice at once":        {before: says{{opQuestion, 1, 1000, 7, nil}, {opQuestion, 1, 1000, 7, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newHub(), newStuck()
				g, b := hostile(t, h, Options{Handlers: map[Method]Handler{1: s.handle}})
				g.say(t, c.before...)
				if c.after != nil {
					out := goCall(t.Context(), b, 1, 1, nil)
					if p := g.hear(); p.op != opQuestion || p.id != 1 || p.number != 10_000 {
						t.Errorf("%+v", p)
					}
					g.say(t, c.after...)
					fails(t, <-out, control.ErrDisconnected, 0)
				}
				<-g.ended
			})
		})
	}
}

// Late packets are allowed: answers to requests that were given up, a second
// answer, a cancel of an unknown request, an answer that is interrupted.
func TestLateWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		g, b := hostile(t, h, Options{Handlers: map[Method]Handler{1: echo}})
		ctx, cancel := context.WithCancel(t.Context())
		out := goCall(ctx, b, 1, 1, nil)
		g.hear()
		g.say(t, packet{opAnswer, 0, 3, 1, []byte("a")})
		synctest.Wait()
		cancel()
		fails(t, <-out, context.Canceled, 0)
		if p := g.hear(); p.op != opCancel || p.id != 1 {
			t.Errorf("%+v", p)
		}
		g.say(t, packet{opMore, 0, 1, 1, []byte("bc")}, packet{opAnswer, 0, 0, 1, nil}, packet{opFailure, 1, 0, 1, nil}, packet{op: opCancel, id: 99})
		out = goCall(t.Context(), b, 1, 1, nil)
		g.hear()
		g.say(t, packet{opAnswer, 0, 3, 2, []byte("a")}, packet{opFailure, 77, 0, 2, []byte("broken off")})
		fails(t, <-out, nil, 77)
		out = goCall(t.Context(), b, 1, 1, nil)
		g.hear()
		g.say(t, packet{opAnswer, 0, 3, 3, []byte("a")}, packet{opMore, 0, 1, 3, []byte("b")}, packet{opMore, 0, 2, 3, []byte("c")})
		if o := <-out; o.err != nil || string(o.answer) != "abc" {
			t.Errorf("%q, %v", o.answer, o.err)
		}
		g.say(t, packet{opQuestion, 1, 1000, 5, []byte("x")})
		if p := g.hear(); p.op != opAnswer || p.id != 5 || string(p.body) != "x" {
			t.Errorf("%+v", p)
		}
	})
}

// A peer that sends requests without end, and reads nothing, occupies a bounded
// amount of memory and loses the session.
func TestFlood(t *testing.T) {
	for name, q := range map[string]packet{
		"refused": {opQuestion, 1, 60_000, 0, make([]byte, MaxQuestion)},
		"unknown": {opQuestion, 9, 60_000, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newHub(), newStuck()
				g, b := hostile(t, h, Options{Handlers: map[Method]Handler{1: s.handle}, MaxConcurrent: 3})
				origin, err := g.Origin(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				l, err := g.live(origin)
				if err != nil {
					t.Fatal(err)
				}
				<-l.to(1).gate
				said := 0
				for ; err == nil; said++ {
					q.id = uint64(said + 1)
					err = g.SendPacketIn(t.Context(), origin, Port, q.encode())
				}
				if <-g.ended; !errors.Is(err, control.ErrDisconnected) || said > 3*maxPosted {
					t.Errorf("after %d questions: %v", said, err)
				}
				if synctest.Wait(); len(s.began) > 3 || b.left() != 0 {
					t.Errorf("%d have begun, %d are left", len(s.began), b.left())
				}
			})
		})
	}
}

// FuzzSession makes a peer send anything, with one of our requests pending: the
// request ends, the session ends with the first packet that breaks a rule, and
// nothing is left.
func FuzzSession(f *testing.F) {
	script := func(all ...packet) []byte {
		var b []byte
		for _, p := range all {
			one := p.encode()
			b = binary.LittleEndian.AppendUint16(b, uint16(len(one)))
			b = append(b, one...)
		}
		return b
	}
	f.Add(script(packet{opAnswer, 0, 2, 1, []byte("hi")}))
	f.Add(script(packet{opAnswer, 0, 3, 1, []byte("h")}, packet{opMore, 0, 1, 1, []byte("i!")}, packet{op: opCancel, id: 1}))
	f.Add(script(packet{opQuestion, 1, 5, 1, []byte("hi")}, packet{opNotice, 1, 0, 0, []byte("hi")}, packet{opFailure, 1, 0, 1, nil}))
	f.Add(script(packet{opQuestion, 2, 5, 1, nil}, packet{opQuestion, 2, 5, 2, nil}, packet{op: opCancel, id: 1}, packet{opQuestion, 2, 1, 1, nil}))
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) { speak(t, b) })
	})
}

// speak has a peer follow a script: lengths of 2 bytes, and packets.
func speak(t *testing.T, script []byte) {
	t.Helper()
	h, s := newHub(), newStuck()
	ended := 0
	o := Options{
		Handlers: map[Method]Handler{1: echo, 2: s.handle}, MaxConcurrent: 2, Timeout: time.Hour,
		Notices: map[Method]func(Caller, []byte){1: func(Caller, []byte) {}}, OnEnd: func(Caller) { ended++ },
	}
	e := h.endpoint(t, 0, o)
	l := h.connect(t, 0, 1)
	out := goCall(t.Context(), e, 1, 1, nil)
	synctest.Wait()
	from, broken, asks := comm.Origin{Rank: 1, Session: l.session}, error(nil), false
	for len(script) >= 2 && broken == nil {
		n := min(int(binary.LittleEndian.Uint16(script)), len(script)-2)
		p := bytes.Clone(script[2 : 2+n])
		script = script[2+n:]
		asks = asks || n > 0 && (op(p[0]) == opQuestion || op(p[0]) == opNotice)
		if broken = (*port)(e).Packet(from, p); broken != nil && !errors.Is(broken, ErrProtocol) {
			t.Errorf("% x: %v", p, broken)
		}
		clear(p)
	}
	h.cut(0, 1)
	if o := <-out; o.err == nil && len(o.answer) > MaxAnswer {
		t.Errorf("an answer of %d bytes", len(o.answer))
	}
	synctest.Wait()
	if e.left() != 0 || ended > 1 || ended == 1 && !asks {
		t.Errorf("%d sessions are left, %d have ended", e.left(), ended)
	}
	if _, err := e.Call(t.Context(), wire.Rank(1), 1, nil); err == nil {
		t.Error("a call after the end")
	}
}

// A handler that panics on a peer's input fails only that request, and reveals
// nothing of the panic to the peer.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		told := 0
		h.endpoint(t, 0, Options{
			Handlers: map[Method]Handler{
				1: echo, 2: func(_ context.Context, _ Caller, b []byte) ([]byte, error) { return b[1<<20:], nil },
			},
			Notices: map[Method]func(Caller, []byte){3: func(Caller, []byte) { told++; panic("secret") }},
		})
		a := h.endpoint(t, 1, Options{})
		h.connect(t, 0, 1)
		for range 2*DefaultConcurrent + 1 {
			_, err := a.Call(t.Context(), 0, 2, []byte("x"))
			fails(t, outcome{err: err}, nil, CodeUnknown)
			if err != nil && strings.Contains(err.Error(), "slice bounds") {
				t.Fatalf("the peer is told %q", err)
			}
		}
		for range 2 {
			if sent, err := a.Notify(0, 3, nil); !sent || err != nil {
				t.Fatalf("notice: %v, %v", sent, err)
			}
			synctest.Wait()
		}
		if b, err := a.Call(t.Context(), 0, 1, []byte("still here")); string(b) != "still here" || err != nil || told != 2 {
			t.Errorf("%q, %v, after %d notices", b, err, told)
		}
	})
}

// A peer's text of a failure is shown on terminals and in logs.
func TestTextOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := hostile(t, newHub(), Options{})
		out := goCall(t.Context(), b, 1, 1, nil)
		g.hear()
		g.say(t, packet{opFailure, 77, 0, 1, []byte("é \x1b[2J\r\n\u202e")})
		var failed *Error
		if o := <-out; !errors.As(o.err, &failed) || failed.Text != "é \uFFFD[2J\uFFFD\uFFFD\uFFFD" {
			t.Errorf("%q", o.err)
		}
	})
}
