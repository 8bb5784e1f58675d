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

// Cable is a pair of namespaces and the cable between them.
type Cable struct {
	Left, Right *Space
	dir         string
}

// Space is a network namespace, together with a mount namespace that has its own
// /etc/hosts.
type Space struct {
	// IPv4 and IPv6 are the addresses of the space, and Name is a host name for both.
	IPv4, IPv6, Name string

	pid   int
	holds *exec.Cmd
	stdin io.Closer
}

// device is the name of the cable's end in each namespace.
const device = "cable0"

// hosts is the content of /etc/hosts, with the names of both spaces.
const hosts = `127.0.0.1 localhost
::1 localhost
10.213.0.1 left.hmcfs.test left4.hmcfs.test
10.213.0.2 right.hmcfs.test right4.hmcfs.test
fd00:213::1 left.hmcfs.test left6.hmcfs.test
fd00:213::2 right.hmcfs.test right6.hmcfs.test
`

// New creates the namespaces and the cable; on an error nothing remains.
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
	// The device is created within a namespace, so that it never exists outside.
	if err = c.Left.run(ctx, "ip", "link", "add", device, "type", "veth", "peer", "name", device, "netns", strconv.Itoa(c.Right.pid)); err != nil {
		return c, err
	}
	return c, errors.Join(c.Left.up(ctx), c.Right.up(ctx), c.Left.carries(ctx, device), c.Right.carries(ctx, device))
}

// start starts the process that keeps the namespaces alive, and mounts /etc/hosts.
func (s *Space) start(ctx context.Context, file string) error {
	// It prints a line once it runs, and ends at the end of its input.
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
	// Mounts inside must not be visible outside.
	if err := s.run(ctx, "mount", "--make-rprivate", "/"); err != nil {
		return err
	}
	return s.run(ctx, "mount", "--bind", file, "/etc/hosts")
}

// up configures the addresses of the cable's end.
func (s *Space) up(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", s.IPv4 + "/24", "dev", device},
		// Without the wait for duplicate address detection.
		{"addr", "add", s.IPv6 + "/64", "dev", device, "nodad"},
		{"link", "set", device, "up"},
	} {
		if err := s.run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// linkPatience bounds the time until a device forwards frames.
const linkPatience = 30 * time.Second

// carries waits until a device forwards frames. The kernel may notice only after more than
// a second that the other end of a cable is up, and drops all frames until then.
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

// carrying reports whether, according to the output of ip, a device is up and, as a port of
// a switch, forwards frames.
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

// Command returns a command that runs in the namespaces. Its process is that of the program
// itself. It starts in the root directory.
func (s *Space) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(s.pid), "--net", "--mount", "--", name}
	return exec.CommandContext(ctx, "nsenter", append(in, args...)...)
}

// Pull unplugs the cable: nothing that is sent arrives any more, and connections stay open.
func (s *Space) Pull(ctx context.Context) error {
	return s.run(ctx, "ip", "link", "set", device, "down")
}

// Vanish removes the addresses: the cable stays plugged in, but the other end no longer
// responds.
func (s *Space) Vanish(ctx context.Context) error {
	return s.run(ctx, "ip", "addr", "flush", "dev", device)
}

// Plug restores the cable and the addresses.
func (s *Space) Plug(ctx context.Context) error {
	// The kernel has removed the IPv6 address with the device.
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

// Close ends both namespaces, and with them the cable. A process that still runs in a
// namespace keeps it.
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

// close ends the process that keeps the namespaces alive.
func (s *Space) close() error {
	if s.stdin == nil {
		return nil
	}
	err := errors.Join(s.stdin.Close(), s.holds.Wait())
	s.stdin = nil
	return err
}
