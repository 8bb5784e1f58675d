package control

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/hmcfs/hmcfs/transport/internal/seal"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// cover returns the protection that this side requires for a connection.
func (o *Options) cover(c net.Conn) wire.Cover {
	switch {
	case o.TLS != nil:
		return wire.CoverTLS
	case c.LocalAddr().Network() == string(Unix):
		return wire.CoverLocal
	case o.Plain:
		return wire.CoverPlain
	}
	return wire.CoverSecret
}

// checkCover reports a peer that requires another protection. Both sides state
// theirs under the secret, so that no party in between can make them agree on
// less.
func checkCover(peer wire.Rank, theirs, ours wire.Cover) error {
	switch {
	case theirs == ours:
		return nil
	case theirs == wire.CoverPlain && ours == wire.CoverSecret:
		return fmt.Errorf("%s was started with --plain and this side was not; use it on both sides or on neither: %w", peer, ErrCover)
	case theirs == wire.CoverSecret && ours == wire.CoverPlain:
		return fmt.Errorf("this side was started with --plain and %s was not; use it on both sides or on neither: %w", peer, ErrCover)
	}
	return fmt.Errorf("the protection of the connection is %q here and %q at %s, so something intercepts it: %w", ours, theirs, peer, ErrAuth)
}

// covered returns the connection to be used after the handshake. Without
// encryption that is the underlying connection.
func covered(c net.Conn, cover wire.Cover) net.Conn {
	sealed, ok := c.(*seal.Conn)
	switch {
	case !ok:
		return c
	case !cover.Encrypts():
		return sealed.NetConn()
	}
	sealed.Ahead()
	return sealed
}

// prologue is the text that both sides mix into Noise's handshake first.
const prologue = "hmcfs 2"

// opening carries HELLO and CHALLENGE: directly inside TLS, and otherwise in the
// two messages of Noise, so that a peer without the secret is not answered.
type opening struct {
	conn net.Conn
	// noise is nil inside TLS.
	noise *seal.Handshake
}

func (o *Options) opening(c net.Conn, initiator bool) (*opening, error) {
	if o.TLS != nil {
		return &opening{conn: c}, nil
	}
	noise, err := seal.NewHandshake(seal.NewKey(o.Secret, noiseUse), prologue, initiator)
	return &opening{conn: c, noise: noise}, err
}

// send sends a frame: directly inside TLS, and otherwise inside another frame of
// its kind.
func (g *opening) send(kind wire.Kind, frame []byte) error {
	if g.noise != nil {
		message, err := g.noise.Write(frame)
		if err != nil {
			return err
		}
		frame = append(wire.Header{Kind: kind, Length: uint32(len(message))}.Append(nil), message...)
	}
	_, err := g.conn.Write(frame)
	return err
}

// receive returns the body of the peer's frame.
func (g *opening) receive(kind wire.Kind) ([]byte, error) {
	_, body, err := ReadFrame(g.conn, kind)
	if err != nil || g.noise == nil {
		return body, err
	}
	frame, err := g.noise.Read(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuth, err)
	}
	if _, body, err = ReadFrame(bytes.NewReader(frame), kind); err != nil {
		return nil, errors.Join(wire.ErrFrame, err)
	}
	return body, nil
}

// proceed returns the connection that follows both frames.
func (g *opening) proceed() (net.Conn, error) {
	if g.noise == nil {
		return g.conn, nil
	}
	return g.noise.Conn(g.conn)
}
