package control

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// crowd is a set of silent connections from many addresses of this machine.
type crowd struct {
	t    *testing.T
	at   Address
	made int
	all  []net.Conn
}

// come makes n more, each from its own address.
func (c *crowd) come(n int) {
	c.t.Helper()
	for range n {
		c.made++
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+c.made>>8), byte(c.made))}}
		conn, err := d.DialContext(c.t.Context(), "tcp", c.at.Addr)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.all = append(c.all, conn)
	}
}

func (c *crowd) leave() {
	for _, conn := range c.all {
		_ = conn.Close()
	}
}

// far is a connection on which something happens between each message and its
// answer.
type far struct {
	net.Conn

	said      bool
	meanwhile func()
}

func (f *far) Write(p []byte) (int, error) {
	f.said = true
	return f.Conn.Write(p)
}

func (f *far) Read(p []byte) (int, error) {
	if f.said {
		f.said = false
		f.meanwhile()
	}
	return f.Conn.Read(p)
}

// A rank that is far away can join while, during each of its messages, more
// silent strangers connect from as many addresses than there is room for.
func TestManyStrangers(t *testing.T) {
	kit.Check(t)
	core, lines := observer.New(zap.WarnLevel)
	o := options(0)
	o.MaxHandshakes, o.Logger = 8, zap.New(core)
	d := newDoor()
	l := listen(t, loopback(), o, d)
	strangers := &crowd{t: t, at: l.Address()}
	defer strangers.leave()
	waiting := func() (all, heard int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for g, n := range l.handshakes.count {
			if g.heard {
				heard += n
			}
		}
		return len(l.handshakes.all), heard
	}
	raw, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 0
	slow := &far{Conn: raw, meanwhile: func() {
		rounds++
		kit.Eventually(t, patience, func() bool {
			_, heard := waiting()
			return heard == 1 || len(d.served) == 1 // the last word has no answer to wait for
		})
		before := strangers.made
		strangers.come(5 * o.MaxHandshakes)
		// All but as many as there is room for are turned away.
		for _, c := range strangers.all[before : strangers.made-o.MaxHandshakes] {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if n, rerr := c.Read(make([]byte, 1)); n != 0 || rerr == nil {
				t.Errorf("a stranger is told %d bytes, %v", n, rerr)
			}
		}
		if all, _ := waiting(); all > o.MaxHandshakes {
			t.Errorf("%d handshakes are under way, at most %d should be", all, o.MaxHandshakes)
		}
	}}
	client := options(1)
	client.EnsureDefaults()
	conn, err := client.connect(within(t), slow, hello(0))
	if err != nil {
		t.Fatalf("among strangers: %v", err)
	}
	_, _ = conn.Close(), accepted(t, d).Close()
	if rounds < 2 {
		t.Errorf("strangers came %d times", rounds)
	}
	// A log that is limited by message contains a few lines of them.
	texts := map[string]bool{}
	for _, line := range lines.All() {
		texts[line.Message] = true
	}
	if len(texts) == 0 || len(texts) > 3 {
		t.Errorf("%d messages about %d strangers: %v", len(texts), strangers.made, texts)
	}
}

// address is a connection that has only a remote address.
type address struct {
	net.Conn

	at net.Addr
}

func (a address) RemoteAddr() net.Addr { return a.at }

func TestSources(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:5":               "10.0.0.1/32",
		"[::ffff:10.0.0.1]:5":      "10.0.0.1/32",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64",
		"[fe80::1%lo]:7":           "fe80::/64",
	} {
		c := address{at: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))}
		if got := sourceOf(c).String(); got != want {
			t.Errorf("%s is of %s, not %s", text, got, want)
		}
	}
	if got := sourceOf(address{at: &net.UnixAddr{}}); got.IsValid() {
		t.Errorf("a Unix socket is of %s", got)
	}
}

// Which candidate is dropped when there are too many: each letter is a source, a
// capital has sent something.
func TestWhoMakesRoom(t *testing.T) {
	for came, want := range map[string]int{
		"aB": 0, "Ab": 1, "AB": 0, "aab": 0, "abb": 1, "ABB": 1, "AAAb": 3, "AAAbcc": 4, "ABBCC": 1,
		"AAAAAAAb": 0, "AAAAAAbc": 6, "AAAABBBBb": 0, "ABBBBBBBc": 1,
	} {
		q := candidates{most: len(came)}
		conns := make([]net.Conn, len(came))
		for i, r := range []byte(came) {
			conns[i] = &address{at: &net.TCPAddr{IP: net.IPv4(10, 0, 0, r|0x20), Port: i}}
			one, surplus := q.add(conns[i])
			if surplus != nil {
				t.Fatalf("%s: no room for %d", came, i)
			}
			if r&0x20 == 0 {
				q.hear(one)
			}
		}
		q.most--
		got := q.drop()
		if got != conns[want] {
			t.Errorf("%s: %v goes, not %d", came, got.RemoteAddr(), want)
		}
		for len(q.all) > 0 {
			if q.remove(q.all[0]) {
				t.Errorf("%s: dropped and still there", came)
			}
		}
		if len(q.count) != 0 {
			t.Errorf("%s: %v are counted", came, q.count)
		}
	}
}

// TestRepeatedHello makes a stranger hold all places by a HELLO that it has
// recorded, or by the start of TLS, which anyone can make. A member can join
// nevertheless.
func TestRepeatedHello(t *testing.T) {
	job := newAuthority(t)
	for name, of := range map[string]func(wire.Rank) Options{
		"secret": options,
		"tls":    func(rank wire.Rank) Options { return Options{Rank: rank, TLS: job.config(t, rank)} },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			o := of(0)
			o.MaxHandshakes = 8
			d := newDoor()
			l := listen(t, loopback(), o, d)
			words := firstWords(t, of(1))
			for range o.MaxHandshakes {
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
				c, err := from.DialContext(t.Context(), "tcp", l.Address().Addr)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if _, err = c.Write(words); err != nil {
					t.Fatal(err)
				}
				if n, rerr := c.Read(make([]byte, 1)); n != 1 {
					t.Fatalf("the stranger is not heard: %v", rerr)
				}
			}
			c, err := Dial(within(t), l.Address(), of(1), hello(0))
			if err != nil {
				t.Fatalf("beside strangers that are heard: %v", err)
			}
			_, _ = c.Close(), accepted(t, d).Close()
		})
	}
}

// firstWords returns a member's first message.
func firstWords(t *testing.T, member Options) []byte {
	t.Helper()
	bareListener, at := bare(t)
	words := make(chan []byte, 1)
	go func() {
		c, err := bareListener.Accept()
		if err != nil {
			close(words)
			return
		}
		p := make([]byte, 16<<10)
		n, _ := c.Read(p)
		_ = c.Close()
		words <- p[:n]
	}()
	if c, err := Dial(within(t), at, member, hello(0)); err == nil {
		_ = c.Close()
		t.Fatal("no listener has answered")
	}
	return <-words
}
