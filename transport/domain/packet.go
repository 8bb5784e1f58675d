package domain

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// op is the kind of a packet; docs/wire.md has the formats.
type op uint8

const (
	opJoin     op = 1
	opReject   op = 2
	opLeave    op = 3
	opMessage  op = 4
	opData     op = 5
	opDone     op = 6
	opCredit   op = 7
	opWithdraw op = 8
	opFlush    op = 9
	opProbe    op = 10
	opCycle    op = 11
	opAsk      op = 12
	opAccept   op = 13
)

// version is the version of the packets.
const version = 1

// The bounds of values in packets.
const (
	// MaxName is the maximum length, in bytes, of a domain's name.
	MaxName = 128
	// MaxRanks is the maximum number of ranks of a domain.
	MaxRanks = 4096
	// MaxViews is the maximum number of buffers of one message.
	MaxViews = 1024
	// maxPath is the maximum number of ranks of a cycle that is detected.
	maxPath = 256
)

// The sizes, in bytes, of packets and their parts.
const (
	headSize    = 8
	joinSize    = headSize + 16
	messageSize = headSize + 24
	remoteSize  = wire.DescriptorSize + 8
	dataSize    = headSize + 8
	doneSize    = headSize + 40
	pathSize    = headSize + 16
)

// appendHead appends the header of a packet. index is the domain's number at the receiver,
// but in Join and Leave at the sender.
func appendHead(p []byte, o op, index uint32) []byte {
	p = append(p, byte(o), version, 0, 0)
	return binary.LittleEndian.AppendUint32(p, index)
}

// parseHead decodes the header.
func parseHead(p []byte) (op, uint32, error) {
	if len(p) < headSize || p[1] != version || p[2] != 0 || p[3] != 0 || p[0] < byte(opJoin) || p[0] > byte(opAccept) {
		return 0, 0, malformed("packet", p)
	}
	return op(p[0]), binary.LittleEndian.Uint32(p[4:]), nil
}

func malformed(what string, p []byte) error {
	return fmt.Errorf("malformed %s of %d bytes, % x: %w", what, len(p), p[:min(len(p), 64)], wire.ErrFrame)
}

// join is a Join or a Reject packet.
type join struct {
	name  string
	ranks []wire.Rank
	// window is the size of the sender's window, in bytes; in a Reject it is the domain's
	// number at the sender.
	window uint64
}

func (j *join) encode(o op, index uint32) []byte {
	p := appendHead(nil, o, index)
	p = binary.LittleEndian.AppendUint64(p, j.window)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(j.ranks)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(j.name)))
	p = append(p, j.name...)
	for _, r := range j.ranks {
		p = binary.LittleEndian.AppendUint32(p, uint32(r))
	}
	return p
}

func parseJoin(p []byte) (join, error) {
	if len(p) < joinSize {
		return join{}, malformed("join", p)
	}
	j := join{window: binary.LittleEndian.Uint64(p[headSize:])}
	count, name := binary.LittleEndian.Uint32(p[headSize+8:]), binary.LittleEndian.Uint32(p[headSize+12:])
	rest := p[joinSize:]
	if count == 0 || count > MaxRanks || name == 0 || name > MaxName || len(rest) != int(name)+4*int(count) {
		return join{}, malformed("join", p)
	}
	j.name = string(rest[:name])
	j.ranks = make([]wire.Rank, count)
	for i := range j.ranks {
		j.ranks[i] = wire.Rank(binary.LittleEndian.Uint32(rest[int(name)+4*i:]))
	}
	return j, nil
}

// envelope is the first packet of a message.
type envelope struct {
	tag wire.Tag
	// id is the sender's number of the message.
	id uint64
	// eager reports that the bytes follow unasked; otherwise they are fetched or, with
	// streams, can be requested.
	eager, streams bool
	// extents are the types and counts of the buffers.
	extents []extent
	// remote holds the place of each buffer at the sender, unless eager is set.
	remote []place
	// rest holds the first bytes, if eager is set.
	rest []byte
}

// extent is a number of elements of a type.
type extent struct {
	typ   elem.Type
	count uint64
}

// typeShift is the position of the type in an encoded extent.
const typeShift = 56

// size returns the size of all elements in bytes.
func (x extent) size() devices.Size { return devices.Size(x.count * x.typ.Size()) }

// place is a range of memory at the sender.
type place struct {
	wire.Descriptor
	off uint64
}

// append appends everything except the bytes of the message.
func (e *envelope) append(p []byte, index uint32) []byte {
	p = appendHead(p, opMessage, index)
	p = binary.LittleEndian.AppendUint64(p, uint64(e.tag))
	p = binary.LittleEndian.AppendUint64(p, e.id)
	p = append(p, flag(e.eager)|flag(e.streams)<<1, 0, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.extents)))
	for _, x := range e.extents {
		p = binary.LittleEndian.AppendUint64(p, uint64(x.typ)<<typeShift|x.count)
	}
	for _, r := range e.remote {
		p = r.Append(p)
		p = binary.LittleEndian.AppendUint64(p, r.off)
	}
	return p
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// parse decodes a message into e, whose slices are reused. rest aliases p.
func (e *envelope) parse(p []byte) error {
	if len(p) < messageSize {
		return malformed("message", p)
	}
	b := p[headSize:]
	e.tag, e.id = wire.Tag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
	e.eager, e.streams = b[16]&1 != 0, b[16]&2 != 0
	count := binary.LittleEndian.Uint32(b[20:])
	if b[16] > 2 || b[17] != 0 || b[18] != 0 || b[19] != 0 || count == 0 || count > MaxViews || len(b) < 24+8*int(count) {
		return malformed("message", p)
	}
	b = b[24:]
	e.extents, e.remote = e.extents[:0], e.remote[:0]
	var total uint64
	for i := range int(count) {
		n := binary.LittleEndian.Uint64(b[8*i:])
		x := extent{elem.Type(n >> typeShift), n & (1<<typeShift - 1)}
		if x.typ.Size() == 0 || x.count > (math.MaxInt64-total)/uint64(x.typ.Size()) {
			return malformed("message", p)
		}
		total += uint64(x.size())
		e.extents = append(e.extents, x)
	}
	e.rest = b[8*count:]
	if e.eager {
		if uint64(len(e.rest)) > total {
			return malformed("message", p)
		}
		return nil
	}
	return e.parsePlaces(p)
}

// parsePlaces decodes the places of the bytes.
func (e *envelope) parsePlaces(p []byte) error {
	if len(e.rest) != remoteSize*len(e.extents) {
		return malformed("message", p)
	}
	for i, x := range e.extents {
		b := e.rest[remoteSize*i:]
		d, err := wire.ParseDescriptor(b[:wire.DescriptorSize])
		if err != nil {
			return err
		}
		at := place{d, binary.LittleEndian.Uint64(b[wire.DescriptorSize:])}
		r := devices.Range{Off: devices.Offset(at.off), Len: x.size()}
		if !r.Within(devices.Size(d.Size)) || !d.Rights.Allows(wire.Readable) {
			return malformed("message", p)
		}
		e.remote = append(e.remote, at)
	}
	e.rest = nil
	return nil
}

// size returns the size of all buffers in bytes.
func (e *envelope) size() devices.Size {
	var n devices.Size
	for _, x := range e.extents {
		n += x.size()
	}
	return n
}

// cost returns the share of the receiver's window that a message uses. Both sides count it.
func cost(views int, eager bool, n devices.Size) uint64 {
	c := uint64(128 + 48*views)
	if eager {
		c += uint64(n)
	}
	return c
}

// outcome is the outcome of a message at its receiver.
type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeMismatch
	outcomeWithdrawn
	outcomeFailed
)

// done is a Done packet.
type done struct {
	id      uint64
	outcome outcome
	// tag and the following fields describe a mismatch, from the view of the receiver.
	tag           wire.Tag
	param         Param
	buffer        uint32
	local, remote uint64
}

func (d *done) encode(index uint32) []byte {
	p := appendHead(make([]byte, 0, doneSize), opDone, index)
	p = binary.LittleEndian.AppendUint64(p, d.id)
	p = append(p, byte(d.outcome), byte(d.param), 0, 0)
	p = binary.LittleEndian.AppendUint32(p, d.buffer)
	p = binary.LittleEndian.AppendUint64(p, uint64(d.tag))
	p = binary.LittleEndian.AppendUint64(p, d.local)
	return binary.LittleEndian.AppendUint64(p, d.remote)
}

func parseDone(p []byte) (done, error) {
	if len(p) != doneSize {
		return done{}, malformed("done", p)
	}
	b := p[headSize:]
	d := done{
		id: binary.LittleEndian.Uint64(b), outcome: outcome(b[8]), param: Param(b[9]), buffer: binary.LittleEndian.Uint32(b[12:]),
		tag: wire.Tag(binary.LittleEndian.Uint64(b[16:])), local: binary.LittleEndian.Uint64(b[24:]), remote: binary.LittleEndian.Uint64(b[32:]),
	}
	mismatch := d.outcome == outcomeMismatch
	if d.outcome > outcomeFailed || b[10] != 0 || b[11] != 0 || mismatch != (d.param >= ParamBuffers && d.param <= ParamCount) ||
		!mismatch && d != (done{id: d.id, outcome: d.outcome}) {
		return done{}, malformed("done", p)
	}
	return d, nil
}

// appendNumber appends a packet with one number: a Credit, Withdraw, Flush, Ask or Accept,
// or the beginning of a Data.
func appendNumber(p []byte, o op, index uint32, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(appendHead(p, o, index), n)
}

// parseNumber decodes such a packet, and returns the rest of a Data.
func parseNumber(p []byte) (n uint64, rest []byte, err error) {
	if len(p) < dataSize || len(p) > dataSize && op(p[0]) != opData {
		return 0, nil, malformed("number", p)
	}
	return binary.LittleEndian.Uint64(p[headSize:]), p[dataSize:], nil
}

// chase is a Probe or a Cycle packet.
type chase struct {
	// nonce is the number of the probe at the first rank of the path.
	nonce uint64
	// path lists the ranks that wait for each other.
	path []wire.Rank
}

func (c *chase) encode(o op) []byte {
	p := appendHead(nil, o, 0)
	p = binary.LittleEndian.AppendUint64(p, c.nonce)
	p = binary.LittleEndian.AppendUint64(p, uint64(len(c.path)))
	for _, r := range c.path {
		p = binary.LittleEndian.AppendUint32(p, uint32(r))
	}
	return p
}

func parseChase(p []byte) (chase, error) {
	if len(p) < pathSize {
		return chase{}, malformed("probe", p)
	}
	n := binary.LittleEndian.Uint64(p[headSize+8:])
	if n == 0 || n > maxPath || len(p) != pathSize+4*int(n) {
		return chase{}, malformed("probe", p)
	}
	c := chase{nonce: binary.LittleEndian.Uint64(p[headSize:]), path: make([]wire.Rank, n)}
	for i := range c.path {
		c.path[i] = wire.Rank(binary.LittleEndian.Uint32(p[pathSize+4*i:]))
	}
	return c, nil
}
