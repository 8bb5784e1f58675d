package fabric

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// packetKind is the kind of a packet.
type packetKind uint8

const (
	// kindPart carries a rank's contribution to a rendezvous.
	kindPart packetKind = 1
	// kindBye announces that a rank closes its fabric.
	kindBye packetKind = 2
)

const (
	packetVersion = 1
	packetHead    = 32
	// maxBlob bounds the contribution of a rank, in bytes.
	maxBlob = 1024
)

// packet is a message between the ranks of a fabric; docs/wire.md has its format.
type packet struct {
	kind packetKind
	// have reports that the sender has our contribution to this rendezvous and knows our
	// number: no answer is needed.
	have       bool
	epoch, seq uint32
	// from is the number of the sender's fabric; to is that of ours, 0 if it is not known
	// yet.
	from, to uint64
	name     string
	blob     []byte
}

// compare compares the rendezvous of a packet with another one.
func (p *packet) compare(epoch, seq uint32) int {
	return cmp.Or(cmp.Compare(p.epoch, epoch), cmp.Compare(p.seq, seq))
}

func (p *packet) encode() []byte {
	b := make([]byte, 0, packetHead+len(p.name)+len(p.blob))
	have := byte(0)
	if p.have {
		have = 1
	}
	b = append(b, packetVersion, byte(p.kind), have, 0)
	b = binary.LittleEndian.AppendUint32(b, p.epoch)
	b = binary.LittleEndian.AppendUint32(b, p.seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.name)))
	b = binary.LittleEndian.AppendUint64(b, p.from)
	b = binary.LittleEndian.AppendUint64(b, p.to)
	return append(append(b, p.name...), p.blob...)
}

// parsePacket decodes a packet; its blob aliases b.
func parsePacket(b []byte) (packet, error) {
	if len(b) < packetHead || b[0] != packetVersion || b[2] > 1 || b[3] != 0 {
		return packet{}, malformed(b)
	}
	p := packet{
		kind: packetKind(b[1]), have: b[2] == 1, epoch: binary.LittleEndian.Uint32(b[4:]), seq: binary.LittleEndian.Uint32(b[8:]),
		from: binary.LittleEndian.Uint64(b[16:]), to: binary.LittleEndian.Uint64(b[24:]),
	}
	name, rest := binary.LittleEndian.Uint32(b[12:]), b[packetHead:]
	if name == 0 || name > domain.MaxName || uint64(name) > uint64(len(rest)) || p.from == 0 || p.kind != kindPart && p.kind != kindBye {
		return packet{}, malformed(b)
	}
	p.name, p.blob = string(rest[:name]), rest[name:]
	if len(p.blob) > maxBlob {
		return packet{}, malformed(b)
	}
	return p, nil
}

func malformed(b []byte) error {
	return fmt.Errorf("fabric: malformed packet of %d bytes, % x: %w", len(b), b[:min(len(b), 64)], wire.ErrFrame)
}
