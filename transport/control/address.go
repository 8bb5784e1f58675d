package control

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Network is the network of a connection, named as in package net.
type Network string

// The networks.
const (
	TCP  Network = "tcp"
	Unix Network = "unix"
)

// Address is an address at which a rank listens.
type Address struct {
	Network Network
	// Addr is host:port, where the host is a name, an IPv4 or a bracketed IPv6
	// address, or empty for all, or the path of a Unix socket.
	Addr string
}

// String returns the address in the form that ParseAddress reads.
func (a Address) String() string { return string(a.Network) + ":" + a.Addr }

// maxSocketPath is the maximum length, in bytes, of a Unix socket's path.
const maxSocketPath = 107

// ParseAddress parses "unix:/run/job/0.sock", "tcp:host:4242" or, shorter,
// "host:4242" and "[::1]:4242".
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" || len(path) > maxSocketPath {
			return Address{}, fmt.Errorf("address %q: the path of a socket must have 1 to %d bytes", text, maxSocketPath)
		}
		return Address{Unix, path}, nil
	}
	addr := strings.TrimPrefix(text, "tcp:")
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return Address{}, fmt.Errorf("address %q: use host:port, [IPv6]:port or unix:PATH: %w", text, err)
	}
	return Address{TCP, addr}, nil
}

// SocketPath returns the path of the socket on which a rank listens, by HMC's
// rule: DIR/hmc_ctrl_rank_N.sock.
//
// A path that is too long for a socket is an error: it is never truncated.
func SocketPath(dir string, r wire.Rank) (string, error) {
	path := filepath.Join(dir, fmt.Sprintf("hmc_ctrl_rank_%d.sock", uint32(r)))
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("socket path %s has %d bytes, more than the %d that the kernel allows; use a shorter directory", path, len(path), maxSocketPath)
	}
	return path, nil
}

// ChooseNetwork applies HMC's rule for two ranks. The override is the value of
// CTRL_TRANSPORT: "uds" means a Unix socket, and any other text TCP. Without an
// override, two ranks with the same address, other than that of all interfaces,
// use a Unix socket.
func ChooseNetwork(override, local, peer string) Network {
	switch {
	case override == "uds":
		return Unix
	case override != "":
		return TCP
	case local != "" && samePlace(local, peer):
		return Unix
	}
	return TCP
}

// samePlace reports whether two hosts are written identically, or are the same IP
// address other than the unspecified one.
func samePlace(a, b string) bool {
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return ipA.Unmap() == ipB.Unmap() && !ipA.Unmap().IsUnspecified()
}
