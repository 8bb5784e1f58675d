package control

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/seal"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Both ends of every connection detect a dead machine within the timeout, and
// those of data connections also while they have something to send.
func TestDeadMachineOptions(t *testing.T) {
	client, server := options(1), options(0)
	client.Timeout, server.Timeout = 9*time.Second, 18*time.Second
	for _, role := range []wire.Role{wire.RoleControl, wire.RoleData} {
		d := newDoor()
		l := listen(t, Address{TCP, "127.0.0.1:0"}, server, d)
		want := hello(0)
		want.Role = role
		confirmed := 0
		if role == wire.RoleData {
			want.Session, confirmed = 1, 1
		}
		a, err := Dial(t.Context(), l.Address(), client, want)
		if err != nil {
			t.Fatal(err)
		}
		checkDead(t, a, map[int]int{unix.TCP_USER_TIMEOUT: 11_000 * confirmed, unix.TCP_KEEPIDLE: 3, unix.TCP_KEEPINTVL: 2, unix.TCP_KEEPCNT: 3})
		checkDead(t, accepted(t, d), map[int]int{unix.TCP_USER_TIMEOUT: 20_000 * confirmed, unix.TCP_KEEPIDLE: 6, unix.TCP_KEEPINTVL: 4, unix.TCP_KEEPCNT: 3})
	}
}

// checkDead checks the options of a connection, and closes it.
func checkDead(t *testing.T, c *Conn, want map[int]int) {
	t.Helper()
	for option, value := range want {
		if got := socketOption(t, c, option); got != value {
			t.Errorf("role %d: TCP option %d is %d, want %d", c.Role, option, got, value)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func socketOption(t *testing.T, c *Conn, option int) int {
	t.Helper()
	inner := c.Conn
	if sealed, ok := inner.(*seal.Conn); ok {
		inner = sealed.NetConn()
	}
	s, ok := inner.(syscall.Conn)
	if !ok {
		t.Fatalf("%T is no socket", c.Conn)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var gerr error
	if err = raw.Control(func(fd uintptr) { got, gerr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) }); err != nil || gerr != nil {
		t.Fatal(err, gerr)
	}
	return got
}
