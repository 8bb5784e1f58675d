package runner

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// ErrProtocol reports a host or a runner that violates the protocol.
var ErrProtocol = errors.New("not understood")

// The first line of a host. Anything before it is noise of the agent, such as a login
// banner.
const (
	greeting = "hmcfs run-host "
	version  = "1"
	// mostNoise bounds the noise, in bytes.
	mostNoise = 64 << 10
)

// kind is the kind of a frame. Its body is a message in JSON, or bytes with a small header.
type kind byte

// Messages from the runner to a host.
const (
	kindBrief  kind = iota + 1 // brief: its part of the job
	kindBook                   // addressBook: the addresses of all ranks; create everything
	kindStart                  // start the programs
	kindSoon                   // SIGTERM to all, and cancel the current step
	kindNow                    // SIGKILL to all
	kindAnswer                 // passage: the end of a rank's barrier
	kindVerify                 // compare the outputs
	kindSave                   // send all buffers
	kindBye                    // end the part
)

// Messages from a host to the runner.
const (
	kindReady    kind = iota + 32 // addressBook: the addresses of its ranks
	kindLoaded                    // everything is created, and inputs are loaded
	kindOutput                    // output of a rank
	kindEnded                     // Ending of a rank
	kindArrive                    // arrival at a barrier
	kindLeave                     // departure: a rank waits no longer
	kindVerdict                   // Verdict of one buffer
	kindVerified                  // all verdicts have been sent
	kindData                      // bytes of a buffer
	kindSaved                     // all bytes have been sent
	kindFault                     // fault: it can't continue
	kindDone                      // done: nothing is left
)

// kindBeat is a heartbeat, in both directions.
const kindBeat kind = 64

// most returns the maximum size, in bytes, of a frame's body.
func (k kind) most() int {
	switch k {
	case kindBrief:
		return 4 << 20
	case kindData, kindOutput:
		return pieceHead + piece
	default:
		return 64 << 10
	}
}

// piece bounds the bytes of output or of a buffer in a frame, and pieceHead the size of
// their header.
const (
	piece     = 64 << 10
	pieceHead = 8
)

// frame is one message.
type frame struct {
	kind kind
	body []byte
}

// frameHead is the size of a frame's header: the kind, and the size of the body.
const frameHead = 5

// readFrame reads a frame. The body is valid until the next frame is read into the same
// room.
func readFrame(from io.Reader, room []byte) (frame, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return frame{}, room, err
	}
	f := frame{kind: kind(head[0])}
	n := binary.BigEndian.Uint32(head[1:])
	if uint64(n) > uint64(f.kind.most()) {
		return f, room, fmt.Errorf("a message of kind %d with %d bytes: %w", f.kind, n, ErrProtocol)
	}
	if int(n) > cap(room) {
		room = make([]byte, n)
	}
	f.body = room[:n]
	if _, err := io.ReadFull(from, f.body); err != nil {
		return f, room, fmt.Errorf("a truncated message: %w", errors.Join(ErrProtocol, err))
	}
	return f, room, nil
}

// appendFrame appends a frame, whose body is the concatenation of some parts.
func appendFrame(p []byte, k kind, parts ...[]byte) []byte {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	p = append(p, byte(k))
	p = binary.BigEndian.AppendUint32(p, uint32(n))
	for _, part := range parts {
		p = append(p, part...)
	}
	return p
}

// encode returns a frame with a message; nil means an empty body.
func encode(k kind, v any) ([]byte, error) {
	if v == nil {
		return appendFrame(nil, k), nil
	}
	body, err := json.Marshal(v)
	if err == nil && len(body) > k.most() {
		err = fmt.Errorf("a message of %d bytes; it has at most %d", len(body), k.most())
	}
	if err != nil {
		return nil, err
	}
	return appendFrame(nil, k, body), nil
}

// decode decodes a message; unknown fields are errors.
func decode[T any](f frame) (*T, error) {
	v := new(T)
	if err := adminapi.Unmarshal(f.body, v); err != nil {
		return nil, fmt.Errorf("a message of kind %d: %w: %w", f.kind, ErrProtocol, err)
	}
	return v, nil
}

// sender writes whole frames.
type sender struct {
	mu sync.Mutex
	// +checklocks:mu
	to io.Writer
	// +checklocks:mu
	buf []byte
}

// send sends a message.
func (s *sender) send(k kind, v any) error {
	p, err := encode(k, v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.to.Write(p)
	return err
}

// sendPiece sends bytes of a rank.
func (s *sender) sendPiece(k kind, head, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = appendFrame(s.buf[:0], k, head, p)
	_, err := s.to.Write(s.buf)
	return err
}

// outputHead returns the header of output: the rank, and 0 or 1 for the stream.
func outputHead(rank, stream int) []byte { return []byte{byte(rank), byte(stream)} }

// dataHead returns the header of bytes of a buffer: the rank, and the buffer's index in the
// config.
func dataHead(rank, buffer int) []byte {
	return binary.BigEndian.AppendUint16([]byte{byte(rank)}, uint16(buffer))
}

// silentError reports a peer that was silent for too long.
type silentError struct{ after time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no message was received from it for %v", e.after)
}

// timedReader is a reader that fails if nothing arrives for limit; 0 means no limit.
type timedReader struct {
	from  io.Reader
	limit time.Duration
}

// Read reads. If this process itself was stopped for a while, bytes that have arrived
// meanwhile are still read.
func (p *timedReader) Read(b []byte) (int, error) {
	d, can := p.from.(interface{ SetReadDeadline(time.Time) error })
	if p.limit == 0 || !can {
		return p.from.Read(b)
	}
	for wait := p.limit; ; wait = p.limit / 10 {
		if d.SetReadDeadline(time.Now().Add(wait)) != nil {
			return p.from.Read(b) // it has no deadlines, like a terminal
		}
		n, err := p.from.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if wait < p.limit {
			return 0, &silentError{p.limit}
		}
	}
}

// awaitGreeting reads up to a host's first line. If there is none, it returns the last
// non-empty line read as noise.
func awaitGreeting(from *bufio.Reader) (noise string, err error) {
	for read := 0; read < mostNoise; {
		line, err := from.ReadSlice('\n')
		read += len(line)
		text := strings.TrimRight(string(line), "\r\n")
		if _, says, ok := strings.Cut(text, greeting); ok && err == nil {
			if says != version {
				return "", fmt.Errorf("hmcfs there uses version %s of run-host, but this one %s: %w", wire.Printable(shorten(says), '?'), version, ErrProtocol)
			}
			return "", nil
		}
		if strings.TrimSpace(text) != "" {
			noise = text
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return shorten(noise), err
		}
	}
	return shorten(noise), fmt.Errorf("no answer from hmcfs: %w", ErrProtocol)
}

// longestText bounds the size, in bytes, of a remote text that is shown.
const longestText = 1000

// shorten makes a remote text safe to show: printable and short.
func shorten(text string) string {
	return wire.Printable(text[:min(len(text), longestText)], '?')
}
