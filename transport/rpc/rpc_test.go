package rpc

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const patience = 60 * time.Second

// node is a rank that listens.
type node struct {
	*Endpoint

	comm *comm.Communicator
	at   control.Address
}

// newNode makes a rank that is closed with the test.
func newNode(t testing.TB, rank wire.Rank, o Options) *node {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := comm.New(comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	o.Comm = c
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(r.Close(), c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	at, err := c.Listen(t.Context(), control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	return &node{r, c, at}
}

// connect makes a session between two nodes.
func connect(t testing.TB, from, to *node) {
	t.Helper()
	if err := from.comm.Connect(t.Context(), to.comm.Rank(), to.at); err != nil {
		t.Fatal(err)
	}
}

// echo answers with the body of its request.
func echo(_ context.Context, _ Caller, body []byte) ([]byte, error) { return body, nil }

// asked is a node that calls rank 0, which has the options.
func asked(t testing.TB, o Options) (asks, answers *node) {
	t.Helper()
	answers = newNode(t, 0, o)
	asks = newNode(t, 1, Options{})
	connect(t, asks, answers)
	return asks, answers
}

func TestCall(t *testing.T) {
	kit.Check(t)
	long := kit.Bytes(7, 0, MaxAnswer)
	told := make(chan []byte, 1)
	a, b := asked(t, Options{
		Handlers: map[Method]Handler{
			1: echo,
			2: func(_ context.Context, from Caller, _ []byte) ([]byte, error) {
				if from.Rank != 1 {
					return nil, errors.New("somebody else")
				}
				return long, nil
			},
			3: func(context.Context, Caller, []byte) ([]byte, error) { return make([]byte, MaxAnswer+1), nil },
		},
		Notices: map[Method]func(Caller, []byte){9: func(_ Caller, body []byte) { told <- body }},
	})
	for _, n := range []int{0, 1, 100, 9000, MaxQuestion} {
		want := kit.Bytes(uint64(n), 0, n)
		if got, err := a.Call(t.Context(), 0, 1, want); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
	}
	if got, err := a.Call(t.Context(), 0, 2, nil); err != nil || !bytes.Equal(got, long) {
		t.Errorf("a long answer: %d bytes, %v", len(got), err)
	}
	var failed *Error
	if _, err := a.Call(t.Context(), 0, 3, nil); !errors.As(err, &failed) || failed.Code != CodeUnknown {
		t.Errorf("an answer that is too long: %v", err)
	}
	if _, err := a.Call(t.Context(), 0, 4, nil); !errors.As(err, &failed) || failed.Code != CodeNoMethod {
		t.Errorf("no method: %v", err)
	}
	if _, err := b.Call(t.Context(), 1, 1, nil); !errors.As(err, &failed) || failed.Code != CodeNoMethod {
		t.Errorf("the other way: %v", err)
	}
	if _, err := a.Call(t.Context(), 0, 1, make([]byte, MaxQuestion+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("a long question: %v", err)
	}
	if _, err := a.Call(t.Context(), 5, 1, nil); !errors.Is(err, comm.ErrNotConnected) {
		t.Errorf("nobody: %v", err)
	}
	if sent, err := a.Notify(0, 9, []byte("hello")); err != nil || !sent {
		t.Fatal(sent, err)
	}
	if got := <-told; string(got) != "hello" {
		t.Errorf("told %q", got)
	}
}
