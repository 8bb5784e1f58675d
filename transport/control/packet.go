package control

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// PacketHandler handles a packet of the peer. The bytes belong to the link, and
// are valid until it returns. It is called from the goroutine that receives
// everything of this peer, so it must not block. An error ends the link.
type PacketHandler func(port wire.Port, p []byte) error

// maxGathered is the maximum size, in bytes, of a packet that is copied into one
// piece before it is written, which costs less than a list of pieces.
const maxGathered = 8 << 10

// SendPacket sends the bytes of all parts as one packet to a port of the peer: up
// to wire.MaxPacket bytes, in up to 1000 parts. The caller may reuse them when it
// returns. Its errors are those of SendTag, and ErrTooLong.
func (l *Link) SendPacket(ctx context.Context, port wire.Port, parts ...[]byte) error {
	if err := l.checkPacket(parts); err != nil {
		return err
	}
	if err := l.room(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendPacketLocked(port, parts)
}

// TryPacket is SendPacket if there is room now. Otherwise sent is false, and
// nothing was sent.
func (l *Link) TryPacket(port wire.Port, parts ...[]byte) (sent bool, err error) {
	if err = l.checkPacket(parts); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil && len(l.unsent) > maxUnsent {
		return false, nil
	}
	err = l.sendPacketLocked(port, parts)
	return err == nil, err
}

// AwaitRoom waits until TryPacket has room. Its errors are those of SendTag.
func (l *Link) AwaitRoom(ctx context.Context) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	return l.Err()
}

// maxParts is the maximum number of parts of a packet, fewer than one system call
// accepts.
const maxParts = 1000

func (l *Link) checkPacket(parts [][]byte) error {
	if n := sizeOf(parts); n > wire.MaxPacket || len(parts) > maxParts {
		return fmt.Errorf("packet of %d bytes in %d parts to %s exceeds the limit of %d bytes in %d parts: %w",
			n, len(parts), l.conn.Peer, wire.MaxPacket, maxParts, ErrTooLong)
	}
	return nil
}

func sizeOf(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// sendPacketLocked writes a packet, or leaves it to the writer if the socket is
// full.
//
// +checklocks:l.mu
func (l *Link) sendPacketLocked(port wire.Port, parts [][]byte) error {
	n := sizeOf(parts)
	head := wire.AppendPacket(l.packet[:0], port, n)
	if n <= maxGathered {
		for _, p := range parts {
			head = append(head, p...)
		}
		l.packet = head
		return l.sendLocked(head)
	}
	l.packet = head
	if l.cause != nil {
		return l.errLocked()
	}
	l.pieces = append(append(l.pieces[:0], head), parts...)
	err := l.sendPiecesLocked(len(head) + n)
	clear(l.pieces)
	return err
}

// sendPiecesLocked writes the n bytes of all pieces, or leaves them to the
// writer.
//
// +checklocks:l.mu
func (l *Link) sendPiecesLocked(n int) error {
	written := 0
	if !l.writing && len(l.unsent) == 0 {
		var err error
		if written, err = l.try.TryParts(l.pieces); err != nil {
			return Disconnected(l.conn.Peer, err)
		}
	}
	if written == n {
		return nil
	}
	for _, p := range l.pieces {
		skip := min(written, len(p))
		written -= skip
		l.unsent = append(l.unsent, p[skip:]...)
	}
	l.wakeLocked()
	return nil
}

// receivePacket passes a packet to the handler without copying it.
func (l *Link) receivePacket(body []byte) error {
	port, p, err := wire.ParsePacket(body)
	if err != nil || l.packets == nil {
		return err
	}
	return l.packets(port, p)
}
