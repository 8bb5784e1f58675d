package keep

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// maxMessage is the length of the longest name, and maxFiles the number of descriptors in
// one message.
const (
	maxMessage = 4096
	maxFiles   = 1
)

// Pair returns a connected pair of sockets: one for Serve, and one for Client, which
// another process may inherit.
func Pair() (serve *net.UnixConn, client *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	client = os.NewFile(uintptr(fds[1]), "keeper")
	serve, err = connOf(os.NewFile(uintptr(fds[0]), "keeper"))
	return serve, client, err
}

func connOf(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if err = f.Close(); err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a Unix socket")
	}
	return u, nil
}

// Serve answers a Client until the connection ends.
func (s *Store) Serve(c *net.UnixConn) error {
	for {
		text, f, err := receive(c)
		if err != nil || text == "" {
			return err
		}
		if err := s.answer(c, text, f); err != nil {
			return err
		}
	}
}

func (s *Store) answer(c *net.UnixConn, text string, f *os.File) error {
	verb, name, _ := strings.Cut(text, " ")
	switch verb {
	case "keep":
		err := errors.Join(s.Keep(name, f), f.Close())
		return send(c, fmt.Sprint("done ", err), nil)
	case "drop":
		return send(c, fmt.Sprint("done ", s.Drop(name)), nil)
	}
	found, err := s.Kept(name)
	for name, f := range found {
		err = errors.Join(err, send(c, "file "+name, f), f.Close())
	}
	return errors.Join(err, send(c, "done <nil>", nil))
}

// Client is a Store in another process.
type Client struct {
	mu   sync.Mutex
	conn *net.UnixConn
}

var _ devices.DescriptorStore = (*Client)(nil)

// NewClient uses the client end of Pair, which it closes.
func NewClient(f *os.File) (*Client, error) {
	c, err := connOf(f)
	return &Client{conn: c}, err
}

// Keep implements devices.DescriptorStore.
func (c *Client) Keep(name string, f *os.File) error {
	_, err := c.ask("keep "+name, f)
	return err
}

// Kept implements devices.DescriptorStore.
func (c *Client) Kept(prefix string) (map[string]*os.File, error) { return c.ask("kept "+prefix, nil) }

// Drop implements devices.DescriptorStore.
func (c *Client) Drop(name string) error {
	_, err := c.ask("drop "+name, nil)
	return err
}

func (c *Client) ask(text string, f *os.File) (map[string]*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := send(c.conn, text, f); err != nil {
		return nil, err
	}
	found := map[string]*os.File{}
	for {
		text, f, err := receive(c.conn)
		if err != nil {
			return found, err
		}
		verb, rest, _ := strings.Cut(text, " ")
		switch {
		case verb == "file":
			found[rest] = f
		case rest == "<nil>":
			return found, nil
		default:
			return found, errors.New(rest)
		}
	}
}

func send(c *net.UnixConn, text string, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix([]byte(text), rights, nil)
	return err
}

func receive(c *net.UnixConn) (text string, f *os.File, err error) {
	p, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, on, _, _, err := c.ReadMsgUnix(p, oob)
	if err != nil {
		return "", nil, err
	}
	if on == 0 {
		return string(p[:n]), nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return "", nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return "", nil, err
	}
	return string(p[:n]), os.NewFile(uintptr(fds[0]), "kept"), nil
}
