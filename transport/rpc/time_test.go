package rpc

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// outcome is the result of a call.
type outcome struct {
	answer []byte
	err    error
}

// call sends a request in a goroutine of its own.
func goCall(ctx context.Context, e *Endpoint, to wire.Rank, m Method, body []byte) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		answer, err := e.Call(ctx, to, m, body)
		out <- outcome{answer, err}
	}()
	return out
}

// stuck is a handler that records its requests, and waits.
type stuck struct {
	began, ended chan string
	// free lets one of them continue.
	free chan struct{}
}

func newStuck() *stuck {
	return &stuck{began: make(chan string, 1000), ended: make(chan string, 1000), free: make(chan struct{}, 1000)}
}

// handle also waits for its context.
func (s *stuck) handle(ctx context.Context, _ Caller, body []byte) ([]byte, error) {
	s.began <- string(body)
	defer func() { s.ended <- string(body) }()
	select {
	case <-s.free:
		return body, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stubborn does not wait for its context.
func (s *stuck) stubborn(_ context.Context, _ Caller, body []byte) ([]byte, error) {
	s.began <- string(body)
	defer func() { s.ended <- string(body) }()
	<-s.free
	return body, nil
}

// fails requests an error, with or without a code.
func fails(t *testing.T, o outcome, want error, code Code) {
	t.Helper()
	if o.err == nil || want != nil && !errors.Is(o.err, want) {
		t.Errorf("%v, not %v", o.err, want)
	}
	var failed *Error
	if errors.As(o.err, &failed) != (code != 0) || code != 0 && failed.Code != code {
		t.Errorf("%v, not with code %d", o.err, code)
	}
}

// A request ends at its deadline at both ends, with or without a deadline of its
// own, and so does one that is blocked in the handler's place.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: s.handle, 2: s.stubborn}, MaxConcurrent: 1})
		a := h.endpoint(t, 1, Options{Timeout: 7 * time.Second})
		h.connect(t, 0, 1)
		begun := time.Now()
		o := <-goCall(t.Context(), a, 0, 1, []byte("a"))
		// Which of the two timers fires first is not defined.
		if !errors.Is(o.err, context.DeadlineExceeded) || time.Since(begun) != 7*time.Second {
			t.Errorf("%v after %v", o.err, time.Since(begun))
		}
		if got := <-s.ended; got != "a" {
			t.Errorf("%q has ended", got)
		}
		// One handler has the only place and ignores its deadline: the request
		// that waits behind it is never started, and the next one is.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := goCall(ctx, a, 0, 2, []byte("b")), goCall(ctx, a, 0, 2, []byte("c"))
		fails(t, <-first, context.DeadlineExceeded, 0)
		fails(t, <-second, context.DeadlineExceeded, 0)
		third := goCall(t.Context(), a, 0, 1, []byte("d"))
		synctest.Wait()
		s.free <- struct{}{}
		s.free <- struct{}{}
		if o := <-third; o.err != nil || string(o.answer) != "d" {
			t.Errorf("%q, %v", o.answer, o.err)
		}
	})
}

// A handler that finishes after the caller's deadline gets a code of its own.
func TestDeadlineAtThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: s.handle}})
		g := h.rogue(t, 1, 0)
		g.say(t, packet{opQuestion, 1, 50, 9, nil})
		begun := time.Now()
		if p := g.hear(); p.op != opFailure || Code(p.what) != CodeDeadline || p.id != 9 || time.Since(begun) != 50*time.Millisecond {
			t.Errorf("%+v after %v", p, time.Since(begun))
		}
		if err := error(&Error{Code: CodeDeadline}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("the code is no deadline")
		}
	})
}

// A caller that gives up ends the handler, and never gets another answer.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		b := h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: s.handle, 2: s.stubborn, 3: echo}})
		a := h.endpoint(t, 1, Options{})
		h.connect(t, 0, 1)
		for _, m := range []Method{1, 2} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			out := goCall(ctx, a, 0, m, []byte("x"))
			<-s.began
			cancel()
			fails(t, <-out, context.Canceled, 0)
			synctest.Wait()
			if n := len(s.ended); n != int(2-m) {
				t.Errorf("%d handlers of method %d have ended", n, m)
			}
			for range len(s.ended) {
				<-s.ended
			}
		}
		s.free <- struct{}{}
		if got, err := a.Call(t.Context(), 0, 3, []byte("next")); err != nil || string(got) != "next" {
			t.Errorf("%q, %v", got, err)
		}
		if got := b.Stats(); got.Answered != 3 || got.Refused != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// MaxConcurrent requests are served, as many wait, and the next one is refused
// before it has started; another lane is not affected.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		lanes := map[Method]Lane{2: 1}
		b := h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: s.handle, 2: echo}, MaxConcurrent: 2, Lanes: lanes})
		a := h.endpoint(t, 1, Options{MaxPending: 5, Lanes: lanes})
		c := h.endpoint(t, 2, Options{})
		h.connect(t, 0, 1)
		h.connect(t, 0, 2)
		var outs []<-chan outcome
		for i := range 4 {
			outs = append(outs, goCall(t.Context(), a, 0, 1, []byte{byte('a' + i)}))
			synctest.Wait()
		}
		if got := len(s.began); got != 2 {
			t.Errorf("%d are answered at once", got)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(t, <-goCall(short, a, 0, 1, []byte("e")), nil, CodeBusy)
		if got := b.Stats(); got.Refused < 10 || got.Refused > 100 || got.Answered != 2 {
			t.Errorf("%+v", got)
		}
		// A caller with a longer deadline is answered when there is room.
		outs = append(outs, goCall(t.Context(), a, 0, 1, []byte("g")))
		synctest.Wait()
		if got, err := a.Call(t.Context(), 0, 2, []byte("lane")); err != nil || string(got) != "lane" {
			t.Errorf("in another lane: %q, %v", got, err)
		}
		last := goCall(t.Context(), c, 0, 1, []byte("f"))
		synctest.Wait()
		if got := len(s.began); got != 3 {
			t.Errorf("another peer waits: %d have begun", got)
		}
		for range 6 {
			s.free <- struct{}{}
		}
		for i, out := range append(outs, last) {
			if o := <-out; o.err != nil || len(o.answer) != 1 {
				t.Errorf("%d: %q, %v", i, o.answer, o.err)
			}
		}
		// In order of arrival.
		want := "abfcdg"
		for i := range want {
			if got := <-s.began; got != want[i:i+1] {
				t.Errorf("%q begins, not %q", got, want[i:i+1])
			}
		}
	})
}

// The caller itself waits before it sends more requests than allowed.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: s.handle}})
		a := h.endpoint(t, 1, Options{MaxPending: 2})
		h.connect(t, 0, 1)
		x, y := goCall(t.Context(), a, 0, 1, []byte("x")), goCall(t.Context(), a, 0, 1, []byte("y"))
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(t, <-goCall(short, a, 0, 1, []byte("late")), context.DeadlineExceeded, 0)
		z := goCall(t.Context(), a, 0, 1, []byte("z"))
		lost := goCall(t.Context(), a, 0, 1, []byte("lost"))
		synctest.Wait()
		if got := a.Stats().Asked; got != 2 {
			t.Errorf("%d were asked", got)
		}
		s.free <- struct{}{}
		synctest.Wait()
		if got := a.Stats().Asked; got != 3 {
			t.Errorf("%d were asked", got)
		}
		h.cut(0, 1)
		done := 0
		for _, out := range []<-chan outcome{x, y, z, lost} {
			if o := <-out; o.err == nil {
				done++
			} else {
				fails(t, o, control.ErrDisconnected, 0)
			}
		}
		if done != 1 {
			t.Errorf("%d were answered", done)
		}
	})
}

// When a session ends: requests fail, handlers are cancelled, those that wait are
// never started, and OnEnd comes after the last one, whose answer is dropped.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		ends := make(chan Caller, 10)
		b := h.endpoint(t, 0, Options{
			Handlers: map[Method]Handler{1: s.handle, 2: s.stubborn, 3: echo}, MaxConcurrent: 2,
			OnEnd: func(c Caller) { ends <- c },
		})
		a := h.endpoint(t, 1, Options{})
		first := h.connect(t, 0, 1)
		var outs []<-chan outcome
		for _, m := range []Method{1, 2, 1, 2} {
			outs = append(outs, goCall(t.Context(), a, 0, m, []byte("old")))
			synctest.Wait()
		}
		second := h.connect(t, 0, 1)
		for _, out := range outs {
			fails(t, <-out, control.ErrDisconnected, 0)
		}
		synctest.Wait()
		if len(s.began) != 2 || len(s.ended) != 1 || len(ends) != 0 {
			t.Errorf("%d began, %d ended, OnEnd was called %d times", len(s.began), len(s.ended), len(ends))
		}
		// The new session uses the same request numbers as the old one.
		if got, err := a.Call(t.Context(), 0, 3, []byte("new")); err != nil || string(got) != "new" {
			t.Errorf("%q, %v", got, err)
		}
		next := goCall(t.Context(), a, 0, 2, []byte("new"))
		synctest.Wait()
		s.free <- struct{}{}
		if got := <-ends; got.Rank != 1 || got.Session != (comm.Origin{Rank: 1, Session: first.session}) {
			t.Errorf("%+v has ended", got)
		}
		synctest.Wait()
		select {
		case o := <-next:
			t.Errorf("the answer of another session: %q, %v", o.answer, o.err)
		default:
		}
		s.free <- struct{}{}
		if o := <-next; o.err != nil || string(o.answer) != "new" {
			t.Errorf("%q, %v", o.answer, o.err)
		}
		h.cut(0, 1)
		if got := <-ends; got.Session.Session != second.session {
			t.Errorf("%+v has ended", got)
		}
		// The end of a session in which only we have sent requests is not
		// reported.
		if synctest.Wait(); len(ends) != 0 || b.left() != 0 || a.left() != 0 {
			t.Errorf("%d ends, and %d and %d sessions are left", len(ends), a.left(), b.left())
		}
		_, err := a.Call(t.Context(), 0, 3, nil)
		if fails(t, outcome{nil, err}, control.ErrDisconnected, 0); a.left() != 0 {
			t.Errorf("a session that had ended is kept")
		}
	})
}

// left returns the state that is kept of sessions.
func (e *Endpoint) left() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.sessions) + len(e.peers)
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(), newStuck()
		ends := make(chan Caller, 10)
		o := Options{Handlers: map[Method]Handler{1: s.handle, 2: s.stubborn}, OnEnd: func(c Caller) { ends <- c }, Silence: time.Hour}
		a, b := h.endpoint(t, 0, o), h.endpoint(t, 1, o)
		h.connect(t, 0, 1)
		ours, theirs := goCall(t.Context(), a, 1, 1, []byte("x")), goCall(t.Context(), b, 0, 1, []byte("y"))
		last := goCall(t.Context(), b, 0, 2, []byte("z"))
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		fails(t, <-ours, comm.ErrClosed, 0)
		fails(t, <-theirs, nil, CodeClosing)
		synctest.Wait()
		if len(ends) != 0 || len(closed) != 0 {
			t.Error("closed while a handler runs")
		}
		// Its answer is still received.
		s.free <- struct{}{}
		if o := <-last; o.err != nil || string(o.answer) != "z" {
			t.Errorf("%q, %v", o.answer, o.err)
		}
		if err := errors.Join(<-closed, a.Close()); err != nil {
			t.Error(err)
		}
		if got := <-ends; got.Rank != 1 {
			t.Errorf("%+v has ended", got)
		}
		_, err := a.Call(t.Context(), 1, 1, nil)
		fails(t, outcome{nil, err}, comm.ErrClosed, 0)
		// Nothing answers any more.
		fails(t, <-goCall(t.Context(), b, 0, 1, nil), context.DeadlineExceeded, 0)
	})
}

// Close does not wait for a peer that reads nothing.
func TestCloseOfUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		a := h.endpoint(t, 0, Options{Handlers: map[Method]Handler{
			1: func(context.Context, Caller, []byte) ([]byte, error) { return make([]byte, MaxAnswer), nil },
		}})
		b := h.endpoint(t, 1, Options{})
		l := h.connect(t, 0, 1)
		<-l.to(1).gate
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		out := goCall(ctx, b, 0, 1, nil)
		synctest.Wait()
		begun := time.Now()
		if err := a.Close(); err != nil || time.Since(begun) > goodbye {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		cancel()
		fails(t, <-out, context.Canceled, 0)
	})
}

// A peer that does not read its answers keeps its own places, and no others.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		long := kit.Bytes(1, 0, MaxAnswer)
		b := h.endpoint(t, 0, Options{MaxConcurrent: 2, Handlers: map[Method]Handler{
			1: func(context.Context, Caller, []byte) ([]byte, error) { return long, nil },
		}})
		slow, quick := h.endpoint(t, 1, Options{}), h.endpoint(t, 2, Options{})
		l := h.connect(t, 0, 1)
		h.connect(t, 0, 2)
		<-l.to(1).gate
		var outs []<-chan outcome
		for range 3 {
			outs = append(outs, goCall(t.Context(), slow, 0, 1, nil))
		}
		synctest.Wait()
		if got := b.Stats().Answered; got != 2 {
			t.Errorf("%d handlers were asked", got)
		}
		if got, err := quick.Call(t.Context(), 0, 1, nil); err != nil || !bytes.Equal(got, long) {
			t.Errorf("another peer: %d bytes, %v", len(got), err)
		}
		l.to(1).gate <- struct{}{}
		for _, out := range outs {
			if o := <-out; o.err != nil || !bytes.Equal(o.answer, long) {
				t.Errorf("%d bytes, %v", len(o.answer), o.err)
			}
		}
		// A request whose deadline passes in the middle of its answer gets no
		// further parts, and its place is free.
		<-l.to(1).gate
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(t, <-goCall(ctx, slow, 0, 1, nil), context.DeadlineExceeded, 0)
		l.to(1).gate <- struct{}{}
		if got, err := slow.Call(t.Context(), 0, 1, nil); err != nil || !bytes.Equal(got, long) {
			t.Errorf("afterwards: %d bytes, %v", len(got), err)
		}
	})
}

// Notices arrive in order, and are not sent if there is no room.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		var told []byte
		h.endpoint(t, 0, Options{Notices: map[Method]func(Caller, []byte){1: func(_ Caller, body []byte) { told = append(told, body...) }}})
		a := h.endpoint(t, 1, Options{})
		l := h.connect(t, 0, 1)
		<-l.to(0).gate
		sent := 0
		for i := range 2 * room {
			ok, err := a.Notify(0, 1, []byte{byte(i)})
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				sent++
			}
			synctest.Wait()
		}
		if sent != room+1 || len(told) != 0 {
			t.Errorf("%d were sent, % x told", sent, told)
		}
		l.to(0).gate <- struct{}{}
		synctest.Wait()
		if want := []byte{0, 1, 2, 3, 4}; !bytes.Equal(told, want) {
			t.Errorf("% x were told", told)
		}
		if ok, err := a.Notify(0, 7, nil); err != nil || !ok {
			t.Errorf("what nobody wants to hear: %v, %v", ok, err)
		}
		if _, err := a.Notify(0, 1, make([]byte, MaxQuestion+1)); !errors.Is(err, ErrTooLong) {
			t.Errorf("a long notice: %v", err)
		}
		if _, err := a.Notify(9, 1, nil); !errors.Is(err, comm.ErrNotConnected) {
			t.Errorf("to nobody: %v", err)
		}
	})
}
