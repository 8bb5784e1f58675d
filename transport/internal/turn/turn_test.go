package turn

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

// line is a connection whose frames are single bytes.
type line struct {
	conn net.Conn
	turn *Turn
	got  chan byte
	stop chan struct{}
	// theirs holds the frames that the waiters have read.
	theirs int
}

func newLine(t *testing.T) (l *line, peer net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	l = &line{conn: a, got: make(chan byte, 1), stop: make(chan struct{})}
	l.turn = New(func() { _ = a.SetReadDeadline(time.Unix(1, 0)) }, func() { _ = a.SetReadDeadline(time.Time{}) })
	var running sync.WaitGroup
	running.Go(l.run)
	t.Cleanup(func() {
		_ = b.Close()
		running.Wait()
		_ = a.Close()
	})
	return l, b
}

func (l *line) read() error {
	var p [1]byte
	_, err := l.conn.Read(p[:])
	if err == nil {
		l.got <- p[0]
	}
	return err
}

func (l *line) run() {
	for {
		if err := l.read(); err != nil {
			return
		}
		if l.turn.Wanted() {
			l.turn.Yield(l.stop)
		}
	}
}

// receive waits for a frame, and reads it if it has the turn.
func (l *line) receive() byte {
	v, ok := Receive(context.Background(), l.turn, l.got, nil, func() bool {
		if len(l.got) == 0 && l.read() == nil {
			l.theirs++
		}
		return len(l.got) > 0
	})
	if !ok {
		v = <-l.got
	}
	return v
}

// While frames come fast, a waiter reads them itself; each frame is seen once and
// in order.
func TestWhoWaitsReads(t *testing.T) {
	kit.Check(t)
	l, peer := newLine(t)
	const frames = 2000
	for i := range frames {
		var sent sync.WaitGroup
		sent.Go(func() { _, _ = peer.Write([]byte{byte(i)}) })
		if v := l.receive(); v != byte(i) {
			t.Fatalf("frame %d is %d", i, v)
		}
		sent.Wait()
	}
	if l.theirs == 0 {
		t.Error("the connection's goroutine has read every frame")
	}
}

// A turn whose holder waits for a frame that does not arrive, and one that is
// unused, return to the connection's goroutine, which then reads.
func TestTurnGoesBack(t *testing.T) {
	kit.Check(t)
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	turn := New(func() { _ = a.SetReadDeadline(time.Unix(1, 0)) }, func() { _ = a.SetReadDeadline(time.Time{}) })
	turn.Yield(nil)
	held := make(chan error)
	go func() {
		<-turn.token
		turn.uses.Add(1)
		var p [1]byte
		_, err := a.Read(p[:])
		turn.Give()
		held <- err
	}()
	kit.Eventually(t, patience, func() bool {
		turn.Yield(nil)
		select {
		case err := <-held:
			return errors.Is(err, os.ErrDeadlineExceeded)
		default:
			return false
		}
	})
	go func() { _, _ = b.Write([]byte{7}) }()
	var p [1]byte
	if _, err := a.Read(p[:]); err != nil || p[0] != 7 {
		t.Errorf("%d, %v", p[0], err)
	}
}

// Recall and the end of the connection end a yield at once, even while the holder
// continues.
func TestRecall(t *testing.T) {
	kit.Check(t)
	interrupted := make(chan struct{}, 1)
	turn := New(func() { interrupted <- struct{}{} }, func() {})
	for name, end := range map[string]func(stop chan struct{}){
		"recall": func(chan struct{}) { turn.Recall() },
		"stop":   func(stop chan struct{}) { close(stop) },
	} {
		stop, back := make(chan struct{}), make(chan struct{})
		go func() {
			turn.Yield(stop)
			close(back)
		}()
		<-turn.token
		end(stop)
		for waiting := true; waiting; {
			turn.uses.Add(1)
			select {
			case <-interrupted:
				waiting = false
			default:
			}
		}
		turn.Give()
		<-back
		t.Log(name)
	}
}
