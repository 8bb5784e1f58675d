package netns

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Cable is two namespaces and what joins them.
type Cable struct {
	Left, Right *Space
	dir         string
}

// Space is a network namespace, and a mount namespace with an /etc/hosts of
// its own.
type Space struct {
	// IPv4 and IPv6 are its addresses, and Name is a host name of both.
	IPv4, IPv6, Name string

	pid   int
	holds *exec.Cmd
	stdin io.Closer
}

// device is the name of the end of the cable in either namespace.
const device = "cable0"

// hosts are the names by which the two know each other.
const hosts = `127.0.0.1 localhost
::1 localhost
10.213.0.1 left.hmcfs.test left4.hmcfs.test
10.213.0.2 right.hmcfs.test right4.hmcfs.test
fd00:213::1 left.hmcfs.test left6.hmcfs.test
fd00:213::2 right.hmcfs.test right6.hmcfs.test
`

// New makes the namespaces and the cable, or leaves nothing behind.
func New(ctx context.Context) (_ *Cable, err error) {
	c := &Cable{
		Left:  &Space{IPv4: "10.213.0.1", IPv6: "fd00:213::1", Name: "left.hmcfs.test"},
		Right: &Space{IPv4: "10.213.0.2", IPv6: "fd00:213::2", Name: "right.hmcfs.test"},
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("network namespaces: %w", err), c.Close())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "hmcfs-netns-"); err != nil {
		return c, err
	}
	file := filepath.Join(c.dir, "hosts")
	if err = os.WriteFile(file, []byte(hosts), 0o644); err != nil {
		return c, err
	}
	for _, s := range []*Space{c.Left, c.Right} {
		if err = s.start(ctx, file); err != nil {
			return c, err
		}
	}
	// The device is made within a namespace: outside none ever is.
	if err = c.Left.run(ctx, "ip", "link", "add", device, "type", "veth", "peer", "name", device, "netns", strconv.Itoa(c.Right.pid)); err != nil {
		return c, err
	}
	return c, errors.Join(c.Left.up(ctx), c.Right.up(ctx), c.Left.carries(ctx, device), c.Right.carries(ctx, device))
}

// start starts the process that the namespaces live by, and mounts the hosts.
func (s *Space) start(ctx context.Context, file string) error {
	// It echoes a line when it is there, and lives until its input ends.
	s.holds = exec.Command("cat")
	s.holds.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	stdin, err := s.holds.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := s.holds.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.holds.Start(); err != nil {
		return err
	}
	s.stdin, s.pid = stdin, s.holds.Process.Pid
	if _, err := io.WriteString(stdin, "here\n"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return err
	}
	// What is mounted inside must not be seen outside.
	if err := s.run(ctx, "mount", "--make-rprivate", "/"); err != nil {
		return err
	}
	return s.run(ctx, "mount", "--bind", file, "/etc/hosts")
}

// up gives the end of the cable its addresses.
func (s *Space) up(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", s.IPv4 + "/24", "dev", device},
		// Without the wait for another machine with the address.
		{"addr", "add", s.IPv6 + "/64", "dev", device, "nodad"},
		{"link", "set", device, "up"},
	} {
		if err := s.run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// linkPatience bounds the time until a device carries what it is given.
const linkPatience = 30 * time.Second

// carries waits until a device passes on what it is given. The kernel notices
// that the other end of a cable is up when it comes to that, which may take more
// than a second, and drops everything until then.
func (s *Space) carries(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, linkPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := s.Command(ctx, "ip", "-j", "-d", "link", "show", "dev", name).Output()
		if err != nil {
			return fmt.Errorf("the state of %s: %w", name, err)
		}
		if yes, err := carrying(out); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s carries nothing: %w: %s", name, ctx.Err(), out)
		case <-tick.C:
		}
	}
}

// carrying reads what ip says of a device: it is up, and if it is a port of a
// switch that forwards.
func carrying(said []byte) (bool, error) {
	var links []struct {
		State string `json:"operstate"`
		Kind  struct {
			Port *struct {
				State string `json:"state"`
			} `json:"info_slave_data"`
		} `json:"linkinfo"`
	}
	if err := json.Unmarshal(said, &links); err != nil || len(links) != 1 {
		return false, fmt.Errorf("the state of %d devices: %w", len(links), err)
	}
	port := links[0].Kind.Port
	return links[0].State == "UP" && (port == nil || port.State == "forwarding"), nil
}

// Command is a command that runs in the namespaces. Its process is the
// program's own. It starts in the root directory.
func (s *Space) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(s.pid), "--net", "--mount", "--", name}
	return exec.CommandContext(ctx, "nsenter", append(in, args...)...)
}

// Pull takes the cable out: nothing that is sent arrives any more, and no
// connection is told.
func (s *Space) Pull(ctx context.Context) error {
	return s.run(ctx, "ip", "link", "set", device, "down")
}

// Vanish takes the addresses away: the cable is there, and nobody answers at
// its end any more.
func (s *Space) Vanish(ctx context.Context) error {
	return s.run(ctx, "ip", "addr", "flush", "dev", device)
}

// Plug puts the cable and the addresses back.
func (s *Space) Plug(ctx context.Context) error {
	// The kernel has taken the IPv6 address away with the device.
	return errors.Join(s.run(ctx, "ip", "link", "set", device, "up"),
		s.run(ctx, "ip", "addr", "replace", s.IPv4+"/24", "dev", device),
		s.run(ctx, "ip", "addr", "replace", s.IPv6+"/64", "dev", device, "nodad"))
}

func (s *Space) run(ctx context.Context, name string, args ...string) error {
	if out, err := s.Command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// Close ends both namespaces; the cable goes with them. What still runs in
// one keeps it.
func (c *Cable) Close() error {
	var errs []error
	for _, s := range []*Space{c.Left, c.Right} {
		errs = append(errs, s.close())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// close ends the process that the namespaces live by.
func (s *Space) close() error {
	if s.stdin == nil {
		return nil
	}
	err := errors.Join(s.stdin.Close(), s.holds.Wait())
	s.stdin = nil
	return err
}
