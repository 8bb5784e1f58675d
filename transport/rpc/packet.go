package rpc

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// op is the kind of a packet. docs/wire.md draws each.
type op uint8

const (
	opQuestion op = 1
	opCancel   op = 2
	opAnswer   op = 3
	opMore     op = 4
	opFailure  op = 5
	opNotice   op = 6
	opPing     op = 7
	opPong     op = 8
)

// version is the version of the packets.
const version = 1

// headSize is the size, in bytes, of the head of every packet.
const headSize = 16

// maxPart is the maximum number of bytes of an answer in one packet.
const maxPart = wire.MaxPacket - headSize

// packet is a packet of any kind.
type packet struct {
	op op
	// what is the method of a request or a notice, or the code of a failure.
	what uint16
	// number is the time in milliseconds that a request has, the size in bytes of
	// a whole answer, or the offset of a further part in it.
	number uint32
	// id is the caller's number of the request.
	id   uint64
	body []byte
}

// appendHead appends everything but the body.
func (p *packet) appendHead(b []byte) []byte {
	b = append(b, byte(p.op), version)
	b = binary.LittleEndian.AppendUint16(b, p.what)
	b = binary.LittleEndian.AppendUint32(b, p.number)
	return binary.LittleEndian.AppendUint64(b, p.id)
}

// encode returns the bytes of the packet.
func (p *packet) encode() []byte { return append(p.appendHead(nil), p.body...) }

// parse parses a packet; its body remains part of b.
func parse(b []byte) (packet, error) {
	if len(b) < headSize || b[1] != version {
		return packet{}, malformed(b)
	}
	p := packet{
		op: op(b[0]), what: binary.LittleEndian.Uint16(b[2:]), number: binary.LittleEndian.Uint32(b[4:]),
		id: binary.LittleEndian.Uint64(b[8:]), body: b[headSize:],
	}
	if !p.valid() {
		return packet{}, malformed(b)
	}
	return p, nil
}

// valid reports whether the fields are consistent. Unused fields are 0.
func (p *packet) valid() bool {
	n := len(p.body)
	switch p.op {
	case opQuestion:
		return p.number > 0 && p.id > 0 && n <= MaxQuestion
	case opCancel:
		return p.what == 0 && p.number == 0 && p.id > 0 && n == 0
	case opAnswer:
		return p.what == 0 && p.number <= MaxAnswer && p.id > 0 && n <= int(p.number) && (n > 0 || p.number == 0)
	case opMore:
		return p.what == 0 && p.number > 0 && p.number <= MaxAnswer && p.id > 0 && n > 0 && n <= MaxAnswer-int(p.number)
	case opFailure:
		return p.what > 0 && p.number == 0 && p.id > 0 && n <= MaxText && utf8.Valid(p.body)
	case opNotice:
		return p.number == 0 && p.id == 0 && n <= MaxQuestion
	case opPing, opPong:
		return p.what == 0 && p.number == 0 && p.id == 0 && n == 0
	default:
		return false
	}
}

func malformed(b []byte) error {
	return fmt.Errorf("malformed packet of %d bytes, % x: %w: %w", len(b), b[:min(len(b), 32)], ErrProtocol, wire.ErrFrame)
}

// failure returns the packet of an error.
func failure(id uint64, code Code, text string) []byte {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > MaxText {
		// Don't cut within a rune.
		cut := MaxText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	p := packet{op: opFailure, what: uint16(max(code, CodeUnknown)), id: id, body: []byte(text)}
	return p.encode()
}
