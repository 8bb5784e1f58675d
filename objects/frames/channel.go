package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/owner"
)

const (
	// MaxDescriptors is the kernel's bound on the descriptors of one message.
	MaxDescriptors = 253
	// numberSize is the size of a message, in bytes: the number of the request that its descriptors belong to.
	numberSize = 8
	// mostStray bounds the messages of other requests that are passed over.
	mostStray = 64
	// channelLimit bounds the time for which the peer may leave messages unread.
	channelLimit = 30 * time.Second
)

// Channel passes the descriptors of a session, beside its connection: a receiver that looks for descriptors in every read
// needs a system call with room for them for each frame. A message is sent before the frame that it belongs to, so it is there when the
// frame is. One goroutine may send, and one may receive, at a time.
type Channel struct {
	conn *net.UnixConn
}

// NewChannel returns a channel, and its other end, for the peer. The caller closes both.
func NewChannel() (*Channel, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	peer := os.NewFile(uintptr(fds[1]), "channel")
	c, err := AdoptChannel(os.NewFile(uintptr(fds[0]), "channel"))
	if err != nil {
		return nil, nil, errors.Join(err, peer.Close())
	}
	return c, peer, nil
}

// AdoptChannel returns the channel of an end, which it closes.
func AdoptChannel(end *os.File) (*Channel, error) {
	conn, err := net.FileConn(end)
	if err = errors.Join(err, end.Close()); err != nil {
		return nil, fmt.Errorf("adopt a channel: %w", err)
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: a channel that is a %T", ErrFrame, conn), conn.Close())
	}
	return &Channel{conn: c}, nil
}

// Close closes the channel. Descriptors that nobody has received are closed too. It does nothing for nil, which is no channel.
func (c *Channel) Close() error {
	if c == nil {
		return nil
	}
	return c.conn.Close()
}

// Send sends the descriptors of a request or of its answer. They remain the caller's.
func (c *Channel) Send(id uint64, files []*os.File) error {
	rights, err := Rights(files)
	if err == nil {
		err = c.conn.SetWriteDeadline(time.Now().Add(channelLimit))
	}
	if err == nil {
		_, _, err = c.conn.WriteMsgUnix(binary.LittleEndian.AppendUint64(nil, id), rights, nil)
	}
	runtime.KeepAlive(files)
	if err != nil {
		return fmt.Errorf("send %d descriptors: %w", len(files), err)
	}
	return nil
}

// Rights returns the control message that carries descriptors. It is valid as long as the caller keeps them open.
//
// Errors: ErrFrame for too many.
func Rights(files []*os.File) ([]byte, error) {
	if len(files) > MaxDescriptors {
		return nil, fmt.Errorf("%w: %d descriptors, the maximum is %d", ErrFrame, len(files), MaxDescriptors)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		err := owner.Control(f, func(fd int) error {
			fds[i] = fd
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i, err)
		}
	}
	return unix.UnixRights(fds...), nil
}

// Receive returns the descriptors of the request, or answer, with a number, of which count were announced. They are there, or it
// fails: it does not wait for the peer. They become the caller's, in their order; on an error none are left open. Those of other
// requests, which were never made, are closed. From an untrusted peer, the user uid, the guard receives them: of descriptors
// that may block on a file system, only those opened with O_PATH are passed on.
//
// Errors: ErrFrame for other descriptors than were announced; owner.ErrSilent.
func (c *Channel) Receive(id uint64, count int, g *owner.Guard, uid uint32) ([]*os.File, error) {
	for range mostStray {
		if err := c.pending(); err != nil {
			return nil, fmt.Errorf("receive %d descriptors: %w", count, err)
		}
		files, number, err := c.message(g, uid)
		if err == nil && number == id && len(files) == count {
			return files, nil
		}
		adminapi.CloseAll(files)
		switch {
		case err != nil:
			return nil, fmt.Errorf("receive %d descriptors: %w", count, err)
		case number == id:
			return nil, fmt.Errorf("%w: %d descriptors announced, %d received", ErrFrame, count, len(files))
		}
	}
	return nil, fmt.Errorf("%w: descriptors of more than %d requests that were not made", ErrFrame, mostStray)
}

// message receives one message, which is there.
func (c *Channel) message(g *owner.Guard, uid uint32) (files []*os.File, number uint64, err error) {
	buf := make([]byte, numberSize+1) // one more, to notice a longer one
	in, err := g.Receive(c.conn, uid, buf)
	switch {
	case errors.Is(err, owner.ErrNoRights):
		err = fmt.Errorf("%w: %w", ErrFrame, err)
	case err != nil:
	case in.N == 0:
		err = io.ErrUnexpectedEOF
	case in.Flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: too many descriptors, or this process has too many files open", ErrFrame)
	case in.N != numberSize:
		err = fmt.Errorf("%w: a message of another size than %d bytes", ErrFrame, numberSize)
	default:
		number = binary.LittleEndian.Uint64(buf)
	}
	return in.Files, number, err
}

// pending returns nil if there is a message, or the end.
//
// Errors: ErrFrame if there is none.
func (c *Channel) pending() error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var none error
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, _, _, none = unix.Recvmsg(int(fd), one[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	if err == nil && errors.Is(none, unix.EAGAIN) {
		err = fmt.Errorf("%w: none were sent", ErrFrame)
	}
	return err
}
