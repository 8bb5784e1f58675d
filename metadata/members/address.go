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

// errAddress is an address that no node of another machine can have said.
var errAddress = errors.New("members: no address of a node of the cluster")

// limitAddresses takes out of a record what is not to be connected to, and returns
// it. Whoever may write to the service may name any address, of which a node of
// this machine, as root maybe, would be the client:
//
//   - of the sockets of this machine only those that hmcfs itself makes for a rank;
//   - of this machine's own network (127.0.0.0/8, ::1, localhost) none, unless this
//     node listens there itself, as when all nodes are on one machine;
//   - of the link's own (169.254.0.0/16, fe80::/10) none, on the same condition;
//   - nothing that is no unicast address, and no port but a number.
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

// reach is from where an address can be reached.
type reach int

const (
	anywhere reach = iota
	onLoopback
	onLink
)

// reachOf returns from where the host of HOST:PORT can be reached.
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

// isHostName reports whether a text can be a name of the DNS. Some resolvers take a
// number at the end for a part of an address: 127.1 is 127.0.0.1 for them.
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

// inHostName reports whether a name of the DNS may have a character.
func inHostName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_'
}
