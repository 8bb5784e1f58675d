package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
	"github.com/hmcfs/hmcfs/transport/internal/seal"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// readAhead is the number of bytes that are read at once: a whole packet fits.
const readAhead = wire.PacketHeaderSize + wire.MaxPacket

// read puts what arrives into the queues.
func (l *Link) read() {
	defer close(l.received)
	// It has the turn when it ends: no other goroutine reads then.
	err := l.receive(l.in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.receiveRest()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the peer closed the connection unexpectedly")
	}
	l.fail(err)
}

func (l *Link) receive(r *bufio.Reader) error {
	for {
		if err := l.receiveFrame(r); err != nil {
			return err
		}
		if l.turn.Wanted() {
			l.turn.Yield(l.stop)
		}
	}
}

// receiveFrame receives one frame. The frame is removed from the read buffer only
// when all of it has arrived and was delivered, so that a reader that was
// interrupted can resume with it.
func (l *Link) receiveFrame(r *bufio.Reader) error {
	head, err := r.Peek(wire.HeaderSize)
	if err != nil {
		return err
	}
	h, err := wire.ParseHeader(head)
	if err != nil {
		return err
	}
	var put func(body []byte) error
	switch h.Kind {
	case wire.KindTag:
		put = l.receiveTag
	case wire.KindMessage:
		put = l.receiveMessage
	case wire.KindPacket:
		put = l.receivePacket
	case wire.KindBye:
		return ErrClosedByPeer
	default:
		return fmt.Errorf("unexpected %s after the handshake: %w", h.Kind, wire.ErrFrame)
	}
	frame, err := r.Peek(wire.HeaderSize + int(h.Length))
	if err != nil {
		return err
	}
	if err = put(frame[wire.HeaderSize:]); err == nil {
		_, _ = r.Discard(len(frame))
	}
	return err
}

// receiveRest receives what arrived before the link's end: the goroutine that
// ends the link, because the peer has ended, may be quicker than the reader.
func (l *Link) receiveRest() {
	limit := time.Now().Add(goodbye)
	for l.in.Buffered() > 0 || l.conn.unread() > 0 {
		if l.conn.SetReadDeadline(limit) != nil || l.receiveFrame(l.in) != nil {
			return
		}
	}
}

// unread returns the number of the peer's bytes that the kernel holds, 0 if unknown,
// and of those read from it but not yet decrypted.
func (c *Conn) unread() int {
	inner, taken := c.Conn, 0
	if sealed, ok := inner.(*seal.Conn); ok {
		taken = sealed.Buffered()
	}
	if secure, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = secure.NetConn()
	}
	s, ok := inner.(syscall.Conn)
	if !ok {
		return taken
	}
	// Without an answer there are none, or the connection has been closed.
	_ = descriptor.Use(s, func(fd int) error {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		taken += n
		return err
	})
	return taken
}

// readTag reads one tag. It is called by a receiver of tags that has the turn. It
// returns false for other frames and errors, which it leaves to the link's
// goroutine.
func (l *Link) readTag() bool {
	l.from.Eager = true
	head, err := l.in.Peek(wire.HeaderSize)
	l.from.Eager = false
	if err != nil {
		return false
	}
	h, err := wire.ParseHeader(head)
	if err != nil || h.Kind != wire.KindTag {
		return false
	}
	if _, err = l.in.Peek(wire.TagFrameSize); err != nil {
		return false
	}
	// There is room for it: the receiver found no tag waiting.
	return l.receiveFrame(l.in) == nil
}

func (l *Link) receiveTag(body []byte) error {
	t, err := wire.ParseTag(body)
	if err != nil {
		return err
	}
	return queue(l, l.tags, t)
}

func (l *Link) receiveMessage(body []byte) error {
	return queue(l, l.messages, append(make([]byte, 0, len(body)), body...))
}

// queue passes a value to receivers. A value for which there is room is still
// received at the end.
func queue[T any](l *Link, to chan T, v T) error {
	select {
	case to <- v:
		return nil
	default:
	}
	select {
	case to <- v:
		return nil
	case <-l.stop:
		return net.ErrClosed
	}
}

// RecvTag returns the next tag of the peer. Tags that arrived before the link's
// end are still returned after it.
//
// Errors: ErrDisconnected; the context's.
func (l *Link) RecvTag(ctx context.Context) (wire.Tag, error) {
	select {
	case t := <-l.tags:
		return t, nil
	default:
	}
	t, ok := turn.Receive(ctx, l.turn, l.tags, l.done, func() bool { return len(l.tags) > 0 || l.readTag() })
	if ok {
		return t, nil
	}
	return next(ctx, l, l.tags)
}

// RecvMessage returns the next message of the peer; it belongs to the caller. Its
// errors are those of RecvTag.
func (l *Link) RecvMessage(ctx context.Context) ([]byte, error) {
	l.turn.Recall()
	return next(ctx, l, l.messages)
}

// next receives from a queue of the link.
func next[T any](ctx context.Context, l *Link, queue chan T) (T, error) {
	var none T
	select {
	case v := <-queue:
		return v, nil
	default:
	}
	select {
	case v := <-queue:
		return v, nil
	case <-ctx.Done():
		return none, fmt.Errorf("receive from %s: %w", l.conn.Peer, ctx.Err())
	case <-l.done:
	}
	select {
	case v := <-queue:
		return v, nil
	default:
		return none, l.Err()
	}
}
