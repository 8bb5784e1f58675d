package nowait

import "net"

// Writer tries to write to one connection. It is used by one goroutine at a
// time. The zero value never writes anything.
type Writer struct {
	// socket is nil if the connection is not a socket, and trier if it is not a
	// Trier.
	socket *Socket
	trier  Trier
}

// Trier is a connection that is not a socket and can accept what fits without
// waiting.
type Trier interface {
	Try(p []byte) (int, error)
	TryParts(parts [][]byte) (int, error)
}

// NewWriter returns the writer of a connection: of a socket, or of a Trier. Any
// other connection, such as one of TLS, gets a writer that writes nothing.
func NewWriter(c net.Conn) (*Writer, error) {
	if t, ok := c.(Trier); ok {
		return &Writer{trier: t}, nil
	}
	s, err := NewSocket(c)
	if err != nil {
		return nil, err
	}
	return &Writer{socket: s}, nil
}

// Try writes as much of p as fits now, often nothing. After an error the
// connection is unusable.
func (w *Writer) Try(p []byte) (int, error) {
	switch {
	case w.trier != nil:
		return w.trier.Try(p)
	case w.socket == nil || len(p) == 0:
		return 0, nil
	}
	return w.socket.Write(p)
}

// TryParts is Try with the bytes of several parts, at most 1024, one after the
// other.
func (w *Writer) TryParts(parts [][]byte) (int, error) {
	switch {
	case w.trier != nil:
		return w.trier.TryParts(parts)
	case w.socket == nil || len(parts) == 0:
		return 0, nil
	}
	return w.socket.WriteParts(parts)
}
