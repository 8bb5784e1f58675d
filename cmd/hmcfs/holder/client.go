package holder

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

var _ devices.DescriptorStore = (*Client)(nil)

const (
	// longestSocket bounds the path of a Unix socket: sun_path has 108 bytes, with a 0 at the end.
	longestSocket = 107
	// patience bounds one exchange with a holder, which only has to look things up.
	patience = 10 * time.Second
)

// Client is a connection to a holder. Its methods may be called from any goroutine; a nil client
// is that of a daemon without a holder, and does nothing.
type Client struct {
	socket string

	mu sync.Mutex
	// +checklocks:mu
	conn *net.UnixConn
	// +checklocks:mu
	buf []byte

	writing sync.Mutex
	// idle are further connections, for Write.
	// +checklocks:writing
	idle []*Client
	// +checklocks:writing
	closed bool
}

// Dial connects to the holder that listens at a path. os.ErrNotExist reports that there is none.
func Dial(socket string) (*Client, error) {
	if len(socket) > longestSocket {
		return nil, fmt.Errorf("%s: no socket has so long a path: %w", socket, os.ErrNotExist)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%s: no holder listens: %w", socket, os.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the holder: %w", err)
	}
	return &Client{socket: socket, conn: conn, buf: make([]byte, maxMessage)}, nil
}

// Finish ends the holder that listens at a path, if there is one and no daemon owns it, and all
// that it keeps.
func Finish(socket string) error {
	c, err := Dial(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = c.Own(); err != nil {
		return errors.Join(err, c.Close())
	}
	return c.End()
}

// ask sends a request and returns its answer. A refusal is an error.
func (c *Client) ask(m *message, f *os.File) (message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sendLocked(m, f)
	var answer message
	if err == nil {
		answer, err = c.answerLocked()
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return message{}, fmt.Errorf("ask the holder to %s: %w", m.Op, err)
	}
	return answer, nil
}

// sendLocked begins an exchange. An exchange that fails ends the connection: its answer must not be
// taken for that of the next one.
//
// +checklocks:c.mu
func (c *Client) sendLocked(m *message, f *os.File) error {
	var limit time.Time // a write has none
	if m.Op != opWrite {
		limit = time.Now().Add(patience)
	}
	err := c.conn.SetDeadline(limit)
	if err == nil {
		err = send(c.conn, m, f)
	}
	if err != nil {
		_ = c.conn.Close()
	}
	return err
}

// answerLocked reads one answer without a descriptor.
//
// +checklocks:c.mu
func (c *Client) answerLocked() (message, error) {
	answer, f, err := receive(c.conn, c.buf)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		_ = c.conn.Close()
	}
	return answer, err
}

// Own makes the caller the daemon that the holder follows, until the client is closed or the
// process dies.
//
// Errors: a refusal while another daemon owns the holder.
func (c *Client) Own() error {
	if c == nil {
		return nil
	}
	_, err := c.ask(&message{Op: opOwn}, nil)
	return err
}

// Keep implements devices.DescriptorStore.
func (c *Client) Keep(name string, f *os.File) error {
	_, err := c.ask(&message{Op: opKeep, Name: name}, f)
	return err
}

// Kept implements devices.DescriptorStore.
func (c *Client) Kept(prefix string) (map[string]*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sendLocked(&message{Op: opKept, Name: prefix}, nil); err != nil {
		return nil, fmt.Errorf("ask the holder for descriptors: %w", err)
	}
	all := map[string]*os.File{}
	for {
		m, f, err := receive(c.conn, c.buf)
		if err != nil {
			_ = c.conn.Close()
		} else if m.Error != "" {
			err = errors.New(m.Error)
		}
		switch {
		case err != nil:
			for _, f := range all {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("ask the holder for descriptors: %w", err)
		case f != nil:
			all[m.Name] = f
		}
		if !m.More {
			return all, nil
		}
	}
}

// Drop implements devices.DescriptorStore. A holder that has ended keeps nothing.
func (c *Client) Drop(name string) error {
	_, err := c.ask(&message{Op: opDrop, Name: name}, nil)
	if err != nil && c.gone() {
		return nil
	}
	return err
}

// gone reports whether no holder listens any more.
func (c *Client) gone() bool {
	other, err := Dial(c.socket)
	if err == nil {
		_ = other.Close() // nothing was asked
	}
	return errors.Is(err, os.ErrNotExist)
}

// Write writes to a descriptor that is kept, in the process of the holder: a write for which the kernel
// waits, uninterruptibly, for something that this process does would keep it from dying. Calls do not wait for each other.
//
// Errors: the holder does not write it. What the kernel said of it is not known.
func (c *Client) Write(name string, p []byte) error {
	w, err := c.writer()
	if err != nil {
		return err
	}
	if _, err = w.ask(&message{Op: opWrite, Name: name, Data: p}, nil); err != nil {
		return errors.Join(err, w.Close())
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return w.Close()
	}
	c.idle = append(c.idle, w)
	return nil
}

// writer returns a connection that is not in use.
func (c *Client) writer() (*Client, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if n := len(c.idle); n > 0 {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return w, nil
	}
	return Dial(c.socket)
}

// Ready reports that the daemon serves, and how to start it again.
func (c *Client) Ready(s Start) error {
	if c == nil {
		return nil
	}
	_, err := c.ask(&message{Op: opReady, Start: &s}, nil)
	return err
}

// Next has another program follow when this daemon ends: once, and the one of Ready again if it does
// not come to serve.
func (c *Client) Next(s Start) error {
	_, err := c.ask(&message{Op: opNext, Start: &s}, nil)
	return err
}

// Status returns the state of the holder.
func (c *Client) Status() (Status, error) {
	answer, err := c.ask(&message{Op: opStatus}, nil)
	if err == nil && answer.Status == nil {
		err = errors.New("the holder's answer has no status")
	}
	if err != nil {
		return Status{}, err
	}
	return *answer.Status, nil
}

// End ends the holder and everything that it keeps, unless it has ended. The client is closed.
func (c *Client) End() error {
	if c == nil {
		return nil
	}
	_, err := c.ask(&message{Op: opEnd}, nil)
	err = errors.Join(err, c.Close())
	if err != nil && c.gone() {
		return nil
	}
	return err
}

// Close ends the connection. For the owner of the holder that is a death.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	c.writing.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.writing.Unlock()
	var errs []error
	for _, w := range idle {
		errs = append(errs, w.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append(errs, c.conn.Close())...)
}
