package side

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// ErrFiles reports descriptors that were sent, or are missing, in violation of
// the protocol.
var ErrFiles = errors.New("side: unexpected or missing descriptors")

// message is a frame to be written, with the descriptors that accompany it.
type message struct {
	frame []byte
	files []*os.File
}

// write writes one frame. Its descriptors are sent with its first bytes.
func (m *message) write(c net.Conn) error {
	if len(m.files) == 0 {
		_, err := c.Write(m.frame)
		return err
	}
	u, ok := c.(*net.UnixConn)
	if !ok || len(m.files) > wire.MaxFiles {
		return fmt.Errorf("can't send %d descriptors over %s: %w", len(m.files), c.LocalAddr().Network(), ErrFiles)
	}
	fds, err := duplicates(m.files)
	if err != nil {
		return err
	}
	defer closeNumbers(fds)
	n, _, err := u.WriteMsgUnix(m.frame, unix.UnixRights(fds...), nil)
	if err != nil || n == len(m.frame) {
		return err
	}
	_, err = u.Write(m.frame[n:])
	return err
}

// duplicates returns duplicate descriptors of the files, which nothing else
// closes meanwhile. Getting the number of an os.File itself would remove it from
// Go's poller.
func duplicates(files []*os.File) (fds []int, err error) {
	for _, f := range files {
		fd, err := descriptor.Duplicate(f)
		if err != nil {
			closeNumbers(fds)
			return nil, fmt.Errorf("duplicate a descriptor to send: %w", err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeNumbers(fds []int) {
	for _, fd := range fds {
		// It fails only for a number that is not open.
		_ = unix.Close(fd)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		// They were only received: no write is lost.
		_ = f.Close()
	}
}

// reader reads frames and their descriptors. It never reads ahead, so that
// descriptors that arrive with the bytes of a frame belong to that frame.
type reader struct {
	conn net.Conn
	oob  []byte
	// files arrived with the frame that is being read.
	files []*os.File
}

func newReader(c net.Conn) *reader {
	return &reader{conn: c, oob: make([]byte, unix.CmsgSpace(4*wire.MaxFiles))}
}

// frame is a frame that was read; its files belong to the holder.
type frame struct {
	kind  wire.Kind
	body  []byte
	files []*os.File
}

// next reads one frame.
func (r *reader) next() (f frame, err error) {
	defer func() {
		if err != nil {
			closeFiles(r.files)
		}
		r.files = nil
	}()
	var head [wire.HeaderSize]byte
	if err = r.full(head[:]); err != nil {
		return frame{}, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return frame{}, err
	}
	body := make([]byte, h.Length)
	if err = r.full(body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return frame{kind: h.Kind, body: body, files: r.files}, nil
}

// full fills p, and keeps the descriptors that arrive with the bytes.
func (r *reader) full(p []byte) error {
	u, ok := r.conn.(*net.UnixConn)
	if !ok {
		_, err := io.ReadFull(r.conn, p)
		return err
	}
	for len(p) > 0 {
		n, oobn, flags, _, err := u.ReadMsgUnix(p, r.oob)
		if kerr := r.keep(r.oob[:oobn], flags); kerr != nil {
			return kerr
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// keep extracts the descriptors from the control messages. The kernel has marked
// them close-on-exec.
func (r *reader) keep(oob []byte, flags int) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, rerr := unix.ParseUnixRights(&messages[i])
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "received"))
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFiles, err)
	case flags&unix.MSG_CTRUNC != 0 || len(r.files) > wire.MaxFiles:
		return fmt.Errorf("more than %d descriptors with one frame, or no free descriptors in this process: %w", wire.MaxFiles, ErrFiles)
	}
	return nil
}

// expect checks that as many descriptors arrived as the frame says, and otherwise
// closes them.
func (f *frame) expect(want uint8) error {
	if len(f.files) == int(want) {
		return nil
	}
	closeFiles(f.files)
	return fmt.Errorf("received %d descriptors with %s, which announced %d: %w", len(f.files), f.kind, want, ErrFiles)
}
