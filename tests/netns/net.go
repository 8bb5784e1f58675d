package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Net is a network of several namespaces at one switch.
type Net struct {
	// Spaces are the machines. Hub is the switch, with an address of its own, for services
	// that all machines need.
	Spaces []*Space
	Hub    *Space
	dir    string
	// relay forwards the frames in a Net of NewRelayed; nil in others.
	relay *relay
}

// maxSpaces is the number of addresses, without the hub's.
const maxSpaces = 100

// hubNumber is the number of the hub's address.
const hubNumber = 254

// numbered returns the space with the given number, which determines its addresses, and a
// name.
func numbered(n int, name string) *Space {
	return &Space{
		IPv4: fmt.Sprintf("10.213.0.%d", n), IPv6: fmt.Sprintf("fd00:213::%x", n), Name: name + ".hmcfs.test",
	}
}

// NewNet creates a hub and n spaces connected to it; on an error nothing remains. Their
// names are node1.hmcfs.test and so on, and hub.hmcfs.test.
func NewNet(ctx context.Context, n int) (*Net, error) { return newNet(ctx, n, (*Net).wire) }

// newNet creates the spaces and connects them.
func newNet(ctx context.Context, n int, join func(*Net, context.Context) error) (_ *Net, err error) {
	if n < 1 || n > maxSpaces {
		return nil, fmt.Errorf("network namespaces: %d of them; use 1 to %d", n, maxSpaces)
	}
	net := &Net{Hub: numbered(hubNumber, "hub")}
	for i := range n {
		net.Spaces = append(net.Spaces, numbered(i+1, "node"+strconv.Itoa(i+1)))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("network namespaces: %w", err), net.Close())
		}
	}()
	if net.dir, err = os.MkdirTemp("", "hmcfs-netns-"); err != nil {
		return net, err
	}
	file := filepath.Join(net.dir, "hosts")
	var names strings.Builder
	names.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for _, s := range net.all() {
		fmt.Fprintf(&names, "%s %s\n%s %s\n", s.IPv4, s.Name, s.IPv6, s.Name)
	}
	if err = os.WriteFile(file, []byte(names.String()), 0o644); err != nil {
		return net, err
	}
	for _, s := range net.all() {
		if err = s.start(ctx, file); err != nil {
			return net, err
		}
	}
	return net, join(net, ctx)
}

func (n *Net) all() []*Space { return append([]*Space{n.Hub}, n.Spaces...) }

// wire creates the switch and the cables. The switch has the name of a cable's end, so that
// the hub can be configured like the other spaces.
func (n *Net) wire(ctx context.Context) error {
	if err := n.Hub.run(ctx, "ip", "link", "add", device, "type", "bridge"); err != nil {
		return err
	}
	if err := n.Hub.up(ctx); err != nil {
		return err
	}
	for i, s := range n.Spaces {
		port := "port" + strconv.Itoa(i+1)
		for _, args := range [][]string{
			{"link", "add", port, "type", "veth", "peer", "name", device, "netns", strconv.Itoa(s.pid)},
			{"link", "set", port, "master", device, "up"},
		} {
			if err := n.Hub.run(ctx, "ip", args...); err != nil {
				return err
			}
		}
		if err := s.up(ctx); err != nil {
			return err
		}
	}
	for i, s := range n.Spaces {
		if err := errors.Join(n.Hub.carries(ctx, "port"+strconv.Itoa(i+1)), s.carries(ctx, device)); err != nil {
			return err
		}
	}
	return n.Hub.carries(ctx, device)
}

// Close ends all namespaces, as Cable.Close does.
func (n *Net) Close() error {
	var errs []error
	if n.relay != nil {
		errs = append(errs, n.relay.close())
	}
	for _, s := range n.all() {
		errs = append(errs, s.close())
	}
	if n.dir != "" {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}

// Enter moves the calling thread into the network namespace, and into no other namespace.
// The caller must have locked the thread, and must never unlock it.
func (s *Space) Enter() error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace of %s: %w", s.Name, err)
	}
	return nil
}

// Start starts a command in the network namespace, but in no other namespace of the space.
func (s *Space) Start(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread, which is in the namespace, ends with the goroutine
		err := s.Enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// nowhere is a hardware address that no device has.
const nowhere = "02:00:00:00:00:ff"

// Cut drops everything that the two spaces send each other, without an error on either
// side. All others still reach both.
func (s *Space) Cut(ctx context.Context, other *Space) error {
	return errors.Join(s.loses(ctx, other), other.loses(ctx, s))
}

func (s *Space) loses(ctx context.Context, to *Space) error {
	return errors.Join(
		s.run(ctx, "ip", "neigh", "replace", to.IPv4, "lladdr", nowhere, "nud", "permanent", "dev", device),
		s.run(ctx, "ip", "neigh", "replace", to.IPv6, "lladdr", nowhere, "nud", "permanent", "dev", device))
}

// Mend ends a Cut.
func (s *Space) Mend(ctx context.Context, other *Space) error {
	var errs []error
	for _, p := range [][2]*Space{{s, other}, {other, s}} {
		errs = append(errs, p[0].run(ctx, "ip", "neigh", "del", p[1].IPv4, "dev", device),
			p[0].run(ctx, "ip", "neigh", "del", p[1].IPv6, "dev", device))
	}
	return errors.Join(errs...)
}

// Slow bounds the rate at which the space sends, in the notation of tc(8), as "10mbit"; an
// empty rate removes the bound.
func (s *Space) Slow(ctx context.Context, rate string) error {
	if rate == "" {
		return s.run(ctx, "tc", "qdisc", "del", "dev", device, "root")
	}
	return s.run(ctx, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
}

// Sent returns the number of bytes that the space has sent since its creation.
func (s *Space) Sent(ctx context.Context) (uint64, error) {
	out, err := s.Command(ctx, "ip", "-s", "-j", "link", "show", "dev", device).Output()
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", s.Name, err)
	}
	var links []struct {
		Stats struct {
			TX struct {
				Bytes uint64 `json:"bytes"`
			} `json:"tx"`
		} `json:"stats64"`
	}
	if err = json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, fmt.Errorf("counters of %s: %d links: %w", s.Name, len(links), err)
	}
	return links[0].Stats.TX.Bytes, nil
}
