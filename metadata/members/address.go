package members

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errAddress reports an address that a node of another machine can't have.
var errAddress = errors.New("members: not a valid address for a node of the cluster")

// limitAddresses removes from a record the addresses that must not be connected to, and
// returns them. Any client with write access to the service may list any address, and a
// node of this machine, possibly running as root, would connect to it:
//
//   - of this machine's Unix sockets only those that hmcfs itself creates for a rank
//     are kept;
//   - loopback addresses (127.0.0.0/8, ::1, localhost) are removed unless this node
//     itself listens on one, as when all nodes are on one machine;
//   - link-local addresses (169.254.0.0/16, fe80::/10) are removed on the same
//     condition;
//   - anything that is no unicast address, and any port that is not a number, is
//     removed.
func (r *Record) limitAddresses(self []string) (refused []string) {
	var loopback, link bool
	for _, text := range self {
		at, err := reachOf(text)
		loopback = loopback || err == nil && at == onLoopback
		link = link || err == nil && at == onLink
	}
	socket := fmt.Sprintf("node-%08x.sock", r.Name.Rank())
	kept := make([]string, 0, len(r.Addresses))
	for _, text := range r.Addresses {
		if path, ok := strings.CutPrefix(text, "unix:"); ok {
			if filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(path) == socket {
				kept = append(kept, text)
				continue
			}
		} else if at, err := reachOf(text); err == nil && (at == anywhere || at == onLoopback && loopback || at == onLink && link) {
			kept = append(kept, text)
			continue
		}
		refused = append(refused, text[:min(len(text), maxText)])
	}
	r.Addresses = slices.Clip(kept)
	return refused
}

// reach is the scope from which an address can be reached.
type reach int

const (
	anywhere reach = iota
	onLoopback
	onLink
)

// reachOf returns the scope from which the host of HOST:PORT can be reached.
//
// Errors: errAddress.
func reachOf(text string) (from reach, err error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(text, "tcp:"))
	if err != nil {
		return 0, fmt.Errorf("%q: %w", text, errAddress)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return 0, fmt.Errorf("%q: port %q: %w", text, port, errAddress)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		if !isHostName(host) {
			return 0, fmt.Errorf("%q: %w", text, errAddress)
		}
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		if name == "localhost" || strings.HasSuffix(name, ".localhost") {
			from = onLoopback
		}
		return from, nil
	}
	switch ip = ip.Unmap(); {
	case ip.IsLoopback():
		from = onLoopback
	case ip.IsLinkLocalUnicast():
		from = onLink
	case !ip.IsGlobalUnicast():
		return 0, fmt.Errorf("%q: %w", text, errAddress)
	}
	return from, nil
}

// isHostName reports whether text can be a DNS name. Names that end in a number are
// rejected because some resolvers treat them as addresses: 127.1 means 127.0.0.1 to them.
func isHostName(text string) bool {
	foreign := func(r rune) bool { return !inHostName(r) }
	if text == "" || len(text) > 253 || strings.ContainsFunc(text, foreign) {
		return false
	}
	last := strings.TrimSuffix(text, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err != nil
}

// inHostName reports whether r may occur in a DNS name.
func inHostName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_'
}
