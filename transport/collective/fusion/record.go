package fusion

import (
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// recordSize is the size, in bytes, of a record:
//
//	0   magic
//	4   reason
//	5   1 for the last record
//	8   first
//	16  last
const recordSize = 24

// magic is the beginning of a record.
const magic = 0x31434d48

// record is a message of the leader: a bucket, or the end.
type record struct {
	reason      Reason
	end         bool
	first, last Ticket
}

func (r record) put(p []byte) {
	clear(p[:recordSize])
	binary.LittleEndian.PutUint32(p, magic)
	p[4] = byte(r.reason)
	if r.end {
		p[5] = 1
	}
	binary.LittleEndian.PutUint64(p[8:], uint64(r.first))
	binary.LittleEndian.PutUint64(p[16:], uint64(r.last))
}

// parse decodes a record, which must begin at a given ticket. An error means that the ranks
// are out of step.
func parse(p []byte, next Ticket) (record, error) {
	r := record{
		reason: Reason(p[4]), end: p[5] == 1,
		first: Ticket(binary.LittleEndian.Uint64(p[8:])), last: Ticket(binary.LittleEndian.Uint64(p[16:])),
	}
	switch {
	case binary.LittleEndian.Uint32(p) != magic, r.reason < Bytes || r.reason > Flush, p[5] > 1:
		return record{}, fmt.Errorf("fusion: %x is not a record of a leader: %w", p[:recordSize], collective.ErrInconsistent)
	case r.first != next, !r.end && r.last < r.first:
		return record{}, fmt.Errorf("fusion: the leader cuts tensors %d to %d, but %d is next: %w", r.first, r.last, next, collective.ErrInconsistent)
	}
	return r, nil
}

// voteSize is the size, in bytes, of a vote.
const voteSize = 24

// vote describes a rank's tensors in a bucket: their number, their size in bytes, and a
// digest of their sizes in order.
type vote struct {
	count, bytes, digest uint64
}

func (v vote) put(p []byte) {
	binary.LittleEndian.PutUint64(p, v.count)
	binary.LittleEndian.PutUint64(p[8:], v.bytes)
	binary.LittleEndian.PutUint64(p[16:], v.digest)
}

func readVote(p []byte) vote {
	return vote{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(p[16:])}
}

// add adds a tensor to the vote; the digest is FNV-1a of the sizes.
func (v *vote) add(size uint64) {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	if v.count == 0 {
		v.digest = offset
	}
	v.count++
	v.bytes += size
	for range 8 {
		v.digest = (v.digest ^ size&0xff) * prime
		size >>= 8
	}
}

// DifferentError reports a rank whose tensors in a bucket differ from the leader's. It
// matches collective.ErrInconsistent.
type DifferentError struct {
	Rank plan.Rank
	// First is the first tensor of the bucket.
	First Ticket
	// Count and Bytes describe the rank's tensors, LeaderCount and LeaderBytes those of the
	// leader.
	Count       uint64
	Bytes       uint64
	LeaderCount uint64
	LeaderBytes uint64
}

// Error describes the tensors of both ranks.
func (e *DifferentError) Error() string {
	text := fmt.Sprintf("fusion: from tensor %d on, rank %d has %d tensors of %d bytes, but the leader has %d of %d bytes",
		e.First, e.Rank, e.Count, e.Bytes, e.LeaderCount, e.LeaderBytes)
	if e.Count == e.LeaderCount && e.Bytes == e.LeaderBytes {
		text += ", of different sizes"
	}
	return text
}

// Is makes the error collective.ErrInconsistent.
func (e *DifferentError) Is(target error) bool { return target == collective.ErrInconsistent }
