package netns

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestCable checks that both spaces reach each other by every name, and no longer once the
// cable is pulled, and that nothing of them is visible outside.
func TestCable(t *testing.T) {
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	kit.Check(t)
	outside, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if now, err := os.ReadFile("/etc/hosts"); err != nil || string(now) != string(outside) {
		t.Errorf("the hosts outside are %q, %v", now, err)
	}
	for _, want := range []string{c.Right.IPv4, c.Right.IPv6} {
		out, err := c.Left.Command(t.Context(), "getent", "ahosts", c.Right.Name).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s is %q, %v; want %s", c.Right.Name, out, err, want)
		}
	}
	link := func() string {
		out, err := c.Left.Command(t.Context(), "ip", "-o", "link", "show", device).CombinedOutput()
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	if got := link(); !strings.Contains(got, "LOWER_UP") {
		t.Errorf("the cable: %s", got)
	}
	if err := c.Right.Pull(t.Context()); err != nil {
		t.Error(err)
	}
	if got := link(); strings.Contains(got, "LOWER_UP") {
		t.Errorf("the cable that was pulled: %s", got)
	}
	if err := c.Right.Plug(t.Context()); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, time.Minute, func() bool { return strings.Contains(link(), "LOWER_UP") })
}

// three creates a net of three machines, which is closed at the end of the test.
func three(t *testing.T, open func(context.Context, int) (*Net, error)) *Net {
	t.Helper()
	n, err := open(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestNet checks that three machines and the hub reach each other, that a pair that is cut
// off does not while all others do, and that everything is as before once the cut is
// removed.
func TestNet(t *testing.T) {
	kit.Require(t, "root", "tool:ip", "tool:tc", "tool:nsenter")
	kit.Check(t)
	n := three(t, NewNet)
	a, b, c := n.Spaces[0], n.Spaces[1], n.Spaces[2]
	// Frames that a busy machine has dropped are sent again after a second, and then later.
	reaches := func(from, to *Space) bool { return said(t, from, to, "x", 20*time.Second) == "x" }
	cut := func(from, to *Space) bool { return said(t, from, to, "x", time.Second) == "" }
	for _, p := range [][2]*Space{{a, b}, {b, c}, {c, n.Hub}, {n.Hub, a}} {
		if !reaches(p[0], p[1]) {
			t.Errorf("%s does not reach %s", p[0].Name, p[1].Name)
		}
	}
	if n, err := a.Sent(t.Context()); err != nil || n == 0 {
		t.Errorf("a has sent %d bytes, %v", n, err)
	}
	if err := a.Cut(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !cut(a, b) || !cut(b, a) || !reaches(a, c) || !reaches(n.Hub, b) {
		t.Error("a cut cuts too much, or nothing")
	}
	if err := a.Mend(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !reaches(a, b) || !reaches(b, a) {
		t.Error("what was mended does not reach the other")
	}
	for _, rate := range []string{"1mbit", ""} {
		if err := a.Slow(t.Context(), rate); err != nil {
			t.Error(err)
		}
		if !reaches(a, b) {
			t.Errorf("at %q nothing arrives", rate)
		}
	}
}

// said returns the text that arrives when one space sends it to another, or an empty one if
// the connection fails within the limit.
func said(t *testing.T, from, to *Space, text string, limit time.Duration) string {
	t.Helper()
	got := make(chan string, 1)
	listening := make(chan net.Listener, 1)
	go inside(t, to, func() {
		l, err := net.Listen("tcp", to.IPv4+":0") //nolint:noctx // it ends with the listener
		if err != nil {
			t.Error(err)
			close(listening)
			return
		}
		listening <- l
		c, err := l.Accept()
		if err != nil {
			got <- ""
			return
		}
		p, _ := io.ReadAll(c) // the test asserts that nothing came
		got <- string(p)
		_ = c.Close()
	})
	l, ok := <-listening
	if !ok {
		return ""
	}
	defer func() { _ = l.Close() }() // wakes Accept
	done := make(chan struct{})
	go inside(t, from, func() {
		defer close(done)
		c, err := net.DialTimeout("tcp", l.Addr().String(), limit) //nolint:noctx // it has a limit
		if err != nil {
			_ = l.Close()
			return
		}
		_, _ = io.WriteString(c, text) // what arrives is asserted on
		_ = c.Close()
	})
	<-done
	return <-got
}

// inside runs fn on a thread in a space. The thread ends with fn.
func inside(t *testing.T, s *Space, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	if err := s.Enter(); err != nil {
		t.Error(err)
	}
	fn()
}
