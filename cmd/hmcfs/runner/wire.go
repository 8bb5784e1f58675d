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

// ErrTalk is a host that says what no host says.
var ErrTalk = errors.New("not understood")

// The first line of a host. What stands before it is noise of the agent, such as
// the greeting of a login.
const (
	greeting = "hmcfs run-host "
	version  = "1"
	// mostNoise bounds that, in bytes.
	mostNoise = 64 << 10
)

// kind is the kind of a frame. What is behind it is a message as JSON, or
// bytes with a small head.
type kind byte

// What the runner says to a host.
const (
	kindBrief  kind = iota + 1 // brief: what its part of the job is
	kindBook                   // book: where all ranks listen; make everything
	kindStart                  // begin the programs
	kindSoon                   // SIGTERM to all, and leave what is being done
	kindNow                    // SIGKILL to all
	kindAnswer                 // passage: a rank's barrier is over
	kindVerify                 // compare the outputs
	kindSave                   // send all buffers
	kindBye                    // end
)

// What a host says to the runner.
const (
	kindReady    kind = iota + 32 // ready: where its ranks will listen
	kindLoaded                    // everything is made, and inputs are in place
	kindOutput                    // what a rank writes
	kindEnded                     // Ending of a rank
	kindArrive                    // arrival at a barrier
	kindLeave                     // departure: it waits no longer
	kindVerdict                   // Verdict of one buffer
	kindVerified                  // that was the last one
	kindData                      // bytes of a buffer
	kindSaved                     // those were the last ones
	kindFault                     // fault: it can't go on
	kindDone                      // done: nothing is left
)

// kindBeat says nothing but that its sender is there.
const kindBeat kind = 64

// most is the most bytes of a frame's body.
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

// piece is the most bytes of output and of buffers in a frame, and pieceHead the
// most of what stands before them.
const (
	piece     = 64 << 10
	pieceHead = 8
)

// frame is one message.
type frame struct {
	kind kind
	body []byte
}

// frameHead is the bytes before a body: the kind, and how long the body is.
const frameHead = 5

// readFrame reads a frame. The body is no longer valid when the next one is
// read into the same room.
func readFrame(from io.Reader, room []byte) (frame, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return frame{}, room, err
	}
	f := frame{kind: kind(head[0])}
	n := binary.BigEndian.Uint32(head[1:])
	if uint64(n) > uint64(f.kind.most()) {
		return f, room, fmt.Errorf("a message of kind %d with %d bytes: %w", f.kind, n, ErrTalk)
	}
	if int(n) > cap(room) {
		room = make([]byte, n)
	}
	f.body = room[:n]
	if _, err := io.ReadFull(from, f.body); err != nil {
		return f, room, fmt.Errorf("a truncated message: %w", errors.Join(ErrTalk, err))
	}
	return f, room, nil
}

// appendFrame appends a frame with a body of some parts.
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

// encode is a frame with a message; nil is an empty one.
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

// decode reads a message, of which every field is known.
func decode[T any](f frame) (*T, error) {
	v := new(T)
	if err := adminapi.Unmarshal(f.body, v); err != nil {
		return nil, fmt.Errorf("a message of kind %d: %w: %w", f.kind, ErrTalk, err)
	}
	return v, nil
}

// sender writes frames whole.
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

// outputHead returns the bytes before output: the rank, and 0 or 1 for the stream.
func outputHead(rank, stream int) []byte { return []byte{byte(rank), byte(stream)} }

// dataHead returns what stands before bytes of a buffer: the rank, and the buffer by
// its place in the config.
func dataHead(rank, buffer int) []byte {
	return binary.BigEndian.AppendUint16([]byte{byte(rank)}, uint16(buffer))
}

// silentError is somebody who has said nothing for too long.
type silentError struct{ after time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no message was received from it for %v", e.after)
}

// patient reads, and gives up when nothing comes for some time. 0 is never.
type patient struct {
	from  io.Reader
	limit time.Duration
}

// Read reads. Where this process itself was stopped for a while, what has come
// meanwhile is read all the same.
func (p *patient) Read(b []byte) (int, error) {
	d, can := p.from.(interface{ SetReadDeadline(time.Time) error })
	if p.limit == 0 || !can {
		return p.from.Read(b)
	}
	for wait := p.limit; ; wait = p.limit / 10 {
		if d.SetReadDeadline(time.Now().Add(wait)) != nil {
			return p.from.Read(b) // such as a terminal
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

// awaitGreeting reads up to a host's first line, and returns what it read before
// it, where there is none.
func awaitGreeting(from *bufio.Reader) (noise string, err error) {
	for read := 0; read < mostNoise; {
		line, err := from.ReadSlice('\n')
		read += len(line)
		text := strings.TrimRight(string(line), "\r\n")
		if _, says, ok := strings.Cut(text, greeting); ok && err == nil {
			if says != version {
				return "", fmt.Errorf("hmcfs there uses version %s of run-host, but this one %s: %w", wire.Printable(shorten(says), '?'), version, ErrTalk)
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
	return shorten(noise), fmt.Errorf("no answer from hmcfs: %w", ErrTalk)
}

// longestText is the most bytes of a text of a host that is shown.
const longestText = 1000

// shorten is a text of somebody else, as it may be shown.
func shorten(text string) string {
	return wire.Printable(text[:min(len(text), longestText)], '?')
}
