package side

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Handshake exchanges the first frames of a side connection, within the timeout, and
// returns the provider. It ends the starter. When the context ends, the
// connection becomes unusable.
func Handshake(ctx context.Context, c net.Conn, s window.Starter, timeout time.Duration) (window.Provider, error) {
	peer, err := exchange(ctx, c, s.Start(), timeout)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open the side connection: %w", err)
	}
	p, err := s.Handshake(peer)
	if err != nil {
		return nil, fmt.Errorf("process the peer's START: %w", err)
	}
	return p, nil
}

func exchange(ctx context.Context, c net.Conn, own window.Offer, timeout time.Duration) (peer window.Offer, err error) {
	err = control.Timely(ctx, c, timeout, func() (err error) {
		if len(own.Blob) > wire.MaxStart {
			return fmt.Errorf("START of %d bytes is too long: %w", len(own.Blob), wire.ErrFrame)
		}
		start := wire.Start{Files: uint8(len(own.Files)), Blob: own.Blob}
		m := message{frame: start.Append(nil), files: own.Files}
		if err = m.write(c); err != nil {
			return err
		}
		f, err := newReader(c).next()
		if err != nil {
			return err
		}
		peer, err = started(f)
		return err
	})
	if err != nil {
		closeFiles(peer.Files)
		return window.Offer{}, err
	}
	return peer, nil
}

// started parses the START of the peer.
func started(f frame) (window.Offer, error) {
	var start wire.Start
	err := fmt.Errorf("received %s instead of START: %w", f.kind, wire.ErrFrame)
	if f.kind == wire.KindStart {
		start, err = wire.ParseStart(f.body)
	}
	if err != nil {
		closeFiles(f.files)
		return window.Offer{}, err
	}
	if err := f.expect(start.Files); err != nil {
		return window.Offer{}, err
	}
	return window.Offer{Blob: start.Blob, Files: f.files}, nil
}
