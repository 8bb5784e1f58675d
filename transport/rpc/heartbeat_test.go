package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
)

// TestSilentPeer makes a peer stop reading with any number of pending requests:
// all fail together when Silence has passed, long before their own deadlines, and
// the session is over for a later request.
func TestSilentPeer(t *testing.T) {
	for _, askers := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(askers), func(t *testing.T) {
			kit.Check(t)
			synctest.Test(t, func(t *testing.T) { silentPeer(t, askers) })
		})
	}
}

func silentPeer(t *testing.T, askers int) {
	t.Helper()
	h := newHub()
	h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: echo}, Silence: time.Hour})
	a := h.endpoint(t, 1, Options{Silence: 10 * time.Second})
	line := h.connect(t, 0, 1)
	if o := <-goCall(t.Context(), a, 0, 1, []byte("before")); o.err != nil {
		t.Fatal(o.err)
	}
	<-time.After(7 * time.Minute) // nothing is asked, and the peer is there
	stopped := time.Now()
	<-line.to(0).gate
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var all []<-chan outcome
	for range askers {
		all = append(all, goCall(ctx, a, 0, 1, nil))
	}
	for _, one := range all {
		o := <-one
		fails(t, o, control.ErrDisconnected, 0)
		silent, ok := errors.AsType[*SilentError](o.err)
		if !ok || silent.Peer != 0 || silent.Since.After(stopped) || stopped.Sub(silent.Since) > 2*time.Second {
			t.Errorf("silent since %v, but was stopped at %v: %v", silent, stopped, o.err)
		}
		if at := time.Since(stopped); at > 10*time.Second {
			t.Errorf("%d askers: an answer after %v", askers, at)
		}
	}
	ended := time.Now()
	if o := <-goCall(ctx, a, 0, 1, nil); o.err == nil || !time.Now().Equal(ended) {
		t.Errorf("after the end: %v, %v later", o.err, time.Since(ended))
	}
}

// TestSilentWithoutQuestions ends a session with an idle peer, too.
func TestSilentWithoutQuestions(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		h, told := newHub(), make(chan Caller, 1)
		h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: echo}, Silence: 10 * time.Second, OnEnd: func(c Caller) { told <- c }})
		a := h.endpoint(t, 1, Options{Silence: time.Hour})
		line := h.connect(t, 0, 1)
		if o := <-goCall(t.Context(), a, 0, 1, nil); o.err != nil {
			t.Fatal(o.err)
		}
		begun := time.Now()
		<-line.to(1).gate
		if <-told; time.Since(begun) > 10*time.Second {
			t.Errorf("the end is told after %v", time.Since(begun))
		}
	})
}

// TestLongQuestion sends a request that takes a hundred times as long as a peer
// may be silent: the peer is working, and its heartbeats show it.
func TestLongQuestion(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		work := func(context.Context, Caller, []byte) ([]byte, error) {
			<-time.After(1000 * time.Second)
			return []byte("done"), nil
		}
		h.endpoint(t, 0, Options{Handlers: map[Method]Handler{1: work}, Silence: 10 * time.Second})
		a := h.endpoint(t, 1, Options{Silence: 10 * time.Second})
		h.connect(t, 0, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if o := <-goCall(ctx, a, 0, 1, nil); o.err != nil || string(o.answer) != "done" {
			t.Errorf("%q, %v", o.answer, o.err)
		}
	})
}
