package adminapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
)

const (
	// MaxFrame bounds the JSON of a frame, in bytes.
	MaxFrame = 1 << 20
	// MaxDescriptors is the kernel's bound on the descriptors of one message.
	MaxDescriptors = 253

	frameHeader = 4
	frameChunk  = 64 << 10
)

// Errors of received data.
var (
	// ErrFrame reports data that is no frame.
	ErrFrame = errors.New("adminapi: invalid frame")
	// ErrJSON reports JSON that does not match the expected type.
	ErrJSON = errors.New("adminapi: invalid JSON")
)

// WriteFrame sends a value as JSON, preceded by its length, four bytes in big-endian order,
// and sends descriptors with its first byte. The descriptors remain the caller's. The duration
// is limited only by the connection's deadline.
func WriteFrame(c *net.UnixConn, v any, descriptors []*os.File) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	switch {
	case len(data) > MaxFrame:
		return fmt.Errorf("send a frame: %d bytes, the maximum is %d: %w", len(data), MaxFrame, ErrFrame)
	case len(descriptors) > MaxDescriptors:
		return fmt.Errorf("send a frame: %d descriptors, the maximum is %d: %w", len(descriptors), MaxDescriptors, ErrFrame)
	}
	rights, err := rightsOf(descriptors)
	if err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	runtime.KeepAlive(descriptors)
	if err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	return nil
}

// rightsOf returns the control message that carries descriptors. The descriptor numbers are
// valid as long as the caller keeps the files open.
func rightsOf(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
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

// ReadFrame reads the JSON of one frame. The received descriptors become the caller's, in
// their order; on an error none are left open. No data may follow the frame. The duration is
// limited only by the connection's deadline.
func ReadFrame(c *net.UnixConn) (data []byte, descriptors []*os.File, err error) {
	return ReadGuarded(c, nil, 0)
}

// ReadGuarded is ReadFrame from an untrusted peer, the user uid: the guard receives the data,
// and of descriptors that may block on a file system, only those opened with O_PATH are passed
// on.
//
// Errors: owner.ErrSilent.
func ReadGuarded(c *net.UnixConn, g *owner.Guard, uid uint32) (data []byte, descriptors []*os.File, err error) {
	data, files, err := readFrame(func(buf []byte) (owner.Received, error) { return g.Receive(c, uid, buf) })
	if err != nil {
		CloseAll(files)
		return nil, nil, fmt.Errorf("read a frame: %w", err)
	}
	return data, files, nil
}

// Unmarshal decodes JSON strictly: exactly one value, without unknown fields.
//
// Errors: ErrJSON.
func Unmarshal(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: extra data after the JSON value", ErrJSON)
	}
	return nil
}

// CloseAll closes descriptors, ignoring nil entries.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written through it
		}
	}
}

// readFrame returns the JSON of one frame, and the descriptors received, also on an error.
func readFrame(receive func(buf []byte) (owner.Received, error)) (data []byte, files []*os.File, err error) {
	buf := make([]byte, frameChunk)
	for want := frameHeader; len(data) < want; {
		in, err := receive(buf)
		files = append(files, in.Files...) // on an error, the caller closes them
		switch {
		case errors.Is(err, owner.ErrNoRights):
			return nil, files, fmt.Errorf("%w: %w", ErrFrame, err)
		case len(files) > MaxDescriptors:
			return nil, files, fmt.Errorf("%w: more than %d descriptors", ErrFrame, MaxDescriptors)
		case in.Flags&unix.MSG_CTRUNC != 0:
			return nil, files, fmt.Errorf("%w: too many descriptors, or this process has too many files open", ErrFrame)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, files, err
		case in.N == 0:
			return nil, files, fmt.Errorf("frame ended after %d bytes: %w", len(data), io.ErrUnexpectedEOF)
		}
		data = append(data, buf[:in.N]...)
		if len(data) < frameHeader {
			continue
		}
		size := binary.BigEndian.Uint32(data)
		if size > MaxFrame {
			return nil, files, fmt.Errorf("%w: %d bytes, the maximum is %d", ErrFrame, size, MaxFrame)
		}
		want = frameHeader + int(size)
		if len(data) > want {
			return nil, files, fmt.Errorf("%w: %d extra bytes", ErrFrame, len(data)-want)
		}
	}
	return data[frameHeader:], files, nil
}
