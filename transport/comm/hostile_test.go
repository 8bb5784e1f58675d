package comm_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// dialRaw connects as a member of the job, which knows the secret but need not
// follow any other rule.
func dialRaw(t *testing.T, at control.Address, want wire.Hello) (*control.Conn, error) {
	t.Helper()
	want.To = 1
	c, err := control.Dial(within(t), at, control.Options{Rank: 0, Secret: kit.Bytes(1, 0, 32)}, want)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
		err = c.SetReadDeadline(time.Now().Add(patience))
	}
	return c, err
}

// dropped waits until a connection is closed by the other side.
func dropped(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func ways(all ...wire.Way) []byte { return wire.Ways(all).Append(nil, wire.KindProposal) }

// TestHostileProposals connects as members that break the rules of the
// negotiation.
func TestHostileProposals(t *testing.T) {
	for name, frame := range map[string][]byte{
		"nonsense":       kit.Bytes(5, 0, 100),
		"a tag":          wire.AppendTag(nil, 1),
		"a choice":       wire.Ways{{Transport: wire.TransportTCP, Usable: true}}.Append(nil, wire.KindChoice),
		"twice the same": ways(wire.Way{Transport: wire.TransportTCP}, wire.Way{Transport: wire.TransportTCP}),
		"nothing at all": ways(),
		"nothing of use": ways(wire.Way{Transport: wire.TransportTCP, Facts: []byte("I\nwill\x1bnot")}),
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			b, _ := ranked(t, 1, nil)
			at, err := b.Listen(t.Context(), socket(t))
			if err != nil {
				t.Fatal(err)
			}
			c, err := dialRaw(t, at, wire.Hello{Role: wire.RoleControl, Channel: 1})
			if err == nil {
				_, err = c.Write(frame)
			}
			if err != nil {
				t.Fatal(err)
			}
			dropped(t, c)
			// The rank is free again.
			a, _ := ranked(t, 0, nil)
			kit.Eventually(t, patience, func() error { return a.Connect(within(t), 1, at) })
		})
	}
}

// TestSideOutOfTurn makes side connections that are not expected.
func TestSideOutOfTurn(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	b, _ := ranked(t, 1, nil)
	at, err := b.Listen(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	first, err := dialRaw(t, at, wire.Hello{Role: wire.RoleControl, Channel: 1})
	if err != nil {
		t.Fatal(err)
	}
	side := wire.Hello{Role: wire.RoleSide, Session: first.Session}
	if _, err := dialRaw(t, at, side); !errors.Is(err, control.ErrRefused) {
		t.Errorf("before the choice: %v", err)
	}
	if _, err := first.Write(ways(wire.Way{Transport: wire.TransportTCP, Usable: true})); err != nil {
		t.Fatal(err)
	}
	if _, _, err := control.ReadFrame(first, wire.KindChoice); err != nil {
		t.Fatal(err)
	}
	if _, err := dialRaw(t, at, side); !errors.Is(err, control.ErrRefused) {
		t.Errorf("of a session without one: %v", err)
	}
	side.Session++
	if _, err := dialRaw(t, at, side); !errors.Is(err, control.ErrRefused) {
		t.Errorf("of no session: %v", err)
	}
}

// TestRelayThatTakesDescriptors connects a member that claims to be on this host,
// and whose side connection then sends no ring.
func TestRelayThatTakesDescriptors(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	b, _ := ranked(t, 1, []comm.Transport{comm.SHM})
	at, err := b.Listen(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	// A real rank proposes, so that its facts are right; the test answers it.
	l, err := net.Listen("unix", socket(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			near, lerr := l.Accept()
			if lerr != nil {
				return
			}
			far, lerr := net.Dial("unix", at.Addr)
			if lerr != nil {
				_ = near.Close()
				return
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]})
					_, _ = way[0].Close(), way[1].Close()
				}()
			}
		}
	}()
	a, _ := ranked(t, 0, []comm.Transport{comm.SHM})
	err = a.Connect(within(t), 1, control.Address{Network: control.Unix, Addr: l.Addr().String()})
	if err == nil {
		t.Error("connected without descriptors")
	}
	kit.Eventually(t, patience, func() bool { return len(b.Peers()) == 0 })
}
