package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// lookUpTime bounds the name lookups that determine our own address.
const lookUpTime = 5 * time.Second

// ownAddress returns the IP address by which other hosts reach this one: the one that the
// user specified; otherwise an address of this host's name, the address at which the
// runner's ssh has connected, or the source address towards another host; otherwise the
// only address.
func ownAddress(ctx context.Context, b *brief, getenv func(string) string) (netip.Addr, error) {
	if b.Address != "" {
		return netip.ParseAddr(b.Address)
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	ours, several, err := interfaceAddresses()
	if err != nil {
		return netip.Addr{}, err
	}
	try := lookUp(ctx, b.Name)
	if words := strings.Fields(getenv("SSH_CONNECTION")); len(words) == 4 {
		if at, perr := netip.ParseAddr(words[2]); perr == nil {
			try = append(try, at)
		}
	}
	for _, peer := range b.Peers {
		for _, at := range lookUp(ctx, peer) {
			if from, rerr := sourceTo(ctx, at); rerr == nil {
				try = append(try, from)
			}
		}
	}
	for _, at := range try {
		if slices.Contains(ours, at.Unmap()) {
			return at.Unmap(), nil
		}
	}
	if several {
		text := fmt.Sprintf("other hosts can reach this one at any of %v; choose one with address=IP in a --hosts-file", ours)
		return netip.Addr{}, &faultError{text: text, class: ErrHost}
	}
	return ours[0], nil
}

// interfaceAddresses returns the addresses of this host that others may reach, and whether
// they belong to several interfaces. If there are none, it returns the loopback address.
func interfaceAddresses() (ours []netip.Addr, several bool, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, false, err
	}
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil || all[i].Flags&net.FlagUp == 0 {
			continue // it has just been removed
		}
		had := len(ours)
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Unmap().IsGlobalUnicast() {
				ours = append(ours, p.Addr().Unmap())
			}
		}
		several = several || had > 0 && len(ours) > had
	}
	if len(ours) == 0 {
		ours = append(ours, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return ours, several, nil
}

// lookUp returns the addresses of a host, ignoring a user in its name; none if only the
// agent knows the name.
func lookUp(ctx context.Context, name string) []netip.Addr {
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		name = name[at+1:]
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil
	}
	return all
}

// sourceTo returns our source address for connections to an address. It sends nothing.
func sourceTo(ctx context.Context, to netip.Addr) (netip.Addr, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(to, 9).String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }()
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	return at.Addr(), err
}

// reserve reserves ports of an address for ranks to listen on. It binds sockets without
// listening, so that the ports are not assigned to others, while a rank can still bind its
// own.
func reserve(at netip.Addr, n int) (held []*os.File, addresses []string, err error) {
	for range n {
		f, port, err := reserveOne(at)
		if err != nil {
			adminapi.CloseAll(held)
			return nil, nil, fmt.Errorf("listen on %s: %w", at, err)
		}
		held, addresses = append(held, f), append(addresses, netip.AddrPortFrom(at, port).String())
	}
	return held, addresses, nil
}

func reserveOne(at netip.Addr) (*os.File, uint16, error) {
	family := unix.AF_INET
	var sa unix.Sockaddr
	if at.Is4() {
		sa = &unix.SockaddrInet4{Addr: at.As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: at.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), at.String())
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	switch v := bound.(type) {
	case *unix.SockaddrInet4:
		return f, uint16(v.Port), nil
	case *unix.SockaddrInet6:
		return f, uint16(v.Port), nil
	}
	return nil, 0, errors.Join(errors.New("a socket of a different family"), f.Close())
}
