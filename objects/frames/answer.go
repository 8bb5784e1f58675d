package frames

import (
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// The bits of a line.
const (
	lineFailed = 1 << iota
	lineSkipped
	lineExists
	lineInfo
	lineBits
)

// maxText bounds the text of an error, in bytes: longer ones are cut.
const maxText = 4 << 10

// AppendPlain appends the line of a key that says nothing but its index: it was a success.
func AppendPlain(b []byte, n int) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(n)), 0)
}

// AppendLine appends a line of an answer. The key itself is not sent: N is its index.
func AppendLine(b []byte, l *adminapi.Line) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(l.N))
	info := l.Device != "" || l.Size != 0 || len(l.Blobs) > 0
	var bits byte
	for i, is := range [...]bool{l.Code != "", l.Skipped, l.Exists, info} {
		if is {
			bits |= 1 << i
		}
	}
	b = append(b, bits)
	if l.Code != "" {
		b = AppendFailure(b, Failure{Code: l.Code, Text: l.Error})
	}
	if !info {
		return b
	}
	device := l.Device[:min(len(l.Device), 1<<8-1)]
	b = append(b, byte(len(device)))
	b = append(b, device...)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Blobs)))
	for _, size := range l.Blobs {
		b = binary.LittleEndian.AppendUint64(b, uint64(size))
	}
	return b
}

// plainLine is the size, in bytes, of a line that says nothing but its index.
const plainLine = 5

// ParseLines passes the lines of a body to each; those that say nothing but their index to plain,
// unless that is nil.
//
// Errors: ErrFrame, also for a line whose index is not below keys; the first error of each.
func ParseLines(body []byte, keys int, plain func(n int), each func(adminapi.Line) error) error {
	c := cursor{rest: body}
	for len(c.rest) > 0 {
		if plain != nil && len(c.rest) >= plainLine && c.rest[4] == 0 {
			if n := binary.LittleEndian.Uint32(c.rest); uint64(n) < uint64(keys) {
				c.rest = c.rest[plainLine:]
				plain(int(n))
				continue
			}
		}
		l, err := c.line(keys)
		if err == nil {
			err = each(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) line(keys int) (adminapi.Line, error) {
	n, bits := c.u32(), c.u8()
	if c.err == nil && (uint64(n) >= uint64(keys) || bits >= lineBits) {
		c.err = fmt.Errorf("%w: line %d of %d keys, bits %#x", ErrFrame, n, keys, bits)
	}
	l := adminapi.Line{N: int(n), Skipped: bits&lineSkipped != 0, Exists: bits&lineExists != 0}
	if bits&lineFailed != 0 {
		f := c.failure()
		l.Code, l.Error = f.Code, f.Text
		if c.err == nil && l.Code == "" {
			c.err = fmt.Errorf("%w: a failure without a code", ErrFrame)
		}
	}
	if bits&lineInfo != 0 {
		l.Device, l.Size = devices.Name(c.take(int(c.u8()))), devices.Size(c.u64())
		blobs := c.count(8)
		l.Blobs = make([]devices.Size, 0, blobs)
		for range blobs {
			l.Blobs = append(l.Blobs, devices.Size(c.u64()))
		}
	}
	return l, c.err
}

// Failure is an error of the daemon.
type Failure struct {
	// Code is the name of a hetero.Status, or a code of an adminapi.Error; at most 255 bytes.
	Code string
	Text string
}

// AppendFailure appends a failure.
func AppendFailure(b []byte, f Failure) []byte {
	code, text := f.Code[:min(len(f.Code), 1<<8-1)], f.Text[:min(len(f.Text), maxText)]
	b = append(b, byte(len(code)))
	b = append(b, code...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// ParseFailure decodes a body that is a failure, or is empty.
//
// Errors: ErrFrame.
func ParseFailure(body []byte) (Failure, error) {
	if len(body) == 0 {
		return Failure{}, nil
	}
	c := cursor{rest: body}
	f := c.failure()
	return f, c.end()
}

func (c *cursor) failure() Failure {
	code := string(c.take(int(c.u8())))
	return Failure{Code: code, Text: string(c.take(int(c.u16())))}
}

// Hello is the greeting of the daemon.
type Hello struct {
	// Session is the secret that requests over HTTP use to refer to the session.
	Session string
	// Calls bounds the calls that the client may have in progress.
	Calls uint32
}

// AppendHello appends the body of a greeting.
func AppendHello(b []byte, h Hello) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.Calls)
	return append(b, h.Session...)
}

// ParseHello decodes a greeting.
//
// Errors: ErrFrame.
func ParseHello(body []byte) (Hello, error) {
	c := cursor{rest: body}
	h := Hello{Calls: c.u32()}
	h.Session = string(c.rest)
	if c.err == nil && (h.Session == "" || h.Calls == 0) {
		c.err = fmt.Errorf("%w: a greeting without a session", ErrFrame)
	}
	return h, c.err
}
