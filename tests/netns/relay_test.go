package netns

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRelayed drops the frames of one direction only, and delays those of another.
func TestRelayed(t *testing.T) {
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	kit.Check(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	n := three(t, NewRelayed)
	a, b, c := n.Spaces[0], n.Spaces[1], n.Spaces[2]
	reaches := func(from, to *Space) bool { return said(t, from, to, "x", 20*time.Second) == "x" }
	for _, p := range [][2]*Space{{a, b}, {b, a}, {b, c}, {c, n.Hub}, {n.Hub, a}} {
		if !reaches(p[0], p[1]) {
			t.Errorf("%s does not reach %s", p[0].Name, p[1].Name)
		}
	}
	toA, fromB := packets(t, a, b)
	toB, fromA := packets(t, b, a)
	n.Impair(a, b, Impairment{Loss: 1})
	// The dropped frame is sent first: it would have arrived before the other.
	send(t, toB, "lost")
	if got := receive(t, fromB, toA, "one way"); got != "one way" {
		t.Errorf("a has received %q from b", got)
	}
	if !reaches(a, c) || !reaches(c, b) {
		t.Error("the loss is that of others too")
	}
	n.Impair(a, b, Impairment{})
	if got := receive(t, fromA, toB, "there"); got != "there" {
		t.Errorf("b has received %q from a", got)
	}
	const late = 100 * time.Millisecond
	n.Impair(a, b, Impairment{Delay: late})
	start := time.Now()
	if got := receive(t, fromA, toB, "late"); got != "late" || time.Since(start) < late {
		t.Errorf("b has received %q after %v", got, time.Since(start))
	}
}

// packets is a pair of sockets: one space sends to another.
func packets(t *testing.T, at, from *Space) (sends net.Conn, receives *net.UDPConn) {
	t.Helper()
	made := make(chan *net.UDPConn)
	go inside(t, at, func() {
		l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(at.IPv4)})
		if err != nil {
			t.Error(err)
		}
		made <- l
	})
	receives = <-made
	sends, err := from.Dial(t.Context(), "udp", receives.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := receives.Close(); err != nil {
			t.Error(err)
		}
		if err := sends.Close(); err != nil {
			t.Error(err)
		}
	})
	return sends, receives
}

func send(t *testing.T, by net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(by, text); err != nil {
		t.Error(err)
	}
}

// receive sends a text and returns what arrives.
func receive(t *testing.T, at *net.UDPConn, by net.Conn, text string) string {
	t.Helper()
	send(t, by, text)
	if err := at.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	n, err := at.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}
