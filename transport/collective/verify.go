package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// VerifyBlock is the size, in bytes, of the blocks that Verify compares.
const VerifyBlock devices.Size = 1 << 20

// Difference describes where the ranks' elements differ.
type Difference struct {
	// Blocks lists the blocks that differ, in order. It is empty if the sizes differ.
	Blocks []BlockDifference
	// Sizes holds the size, in bytes, at each rank, if they differ.
	Sizes []devices.Size
}

// BlockDifference is a block that is not the same at all ranks.
type BlockDifference struct {
	// Block is its number, from 0, and Range its bytes.
	Block uint64
	Range devices.Range
	// Ranks lists the ranks that differ from the majority, in ascending order. If there is
	// a tie, the content at the lowest rank counts as the majority.
	Ranks []plan.Rank
}

// String names the first block and its ranks.
func (d *Difference) String() string {
	if len(d.Blocks) == 0 {
		return fmt.Sprintf("the memory of the ranks differs in size: %v bytes", d.Sizes)
	}
	b := d.Blocks[0]
	text := fmt.Sprintf("block %d (%v) differs at ranks %v", b.Block, b.Range, b.Ranks)
	if more := len(d.Blocks) - 1; more > 0 {
		text += fmt.Sprintf(", and so do %d others", more)
	}
	return text
}

// errUnread reports memory that another rank could not read; that rank has the details.
var errUnread = errors.New("collective: memory could not be read")

// sumSize is the size, in bytes, of a block's checksum on the wire, and roundSums the
// number of them that are exchanged at a time.
const (
	sumSize   = 4
	roundSums = 4096
)

// Verify compares the elements of all ranks by checksums (CRC-32C) of each VerifyBlock. It
// returns nil if they are the same everywhere. All ranks call it, and get the same answer.
//
// Errors: those of Do; those of reading the memory, which the other ranks receive as
// ErrRetry.
func (g *Group) Verify(ctx context.Context, v domain.View) (*Difference, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.admit(); err != nil {
		return nil, err
	}
	sums, failed := sumsOf(ctx, v)
	whole := make([]byte, 13)
	binary.LittleEndian.PutUint64(whole, uint64(v.Size()))
	binary.LittleEndian.PutUint32(whole[8:], crc32.Checksum(sums, crc32.MakeTable(crc32.Castagnoli)))
	if failed != nil {
		whole[12] = 1
	}
	all := rows(g.Size(), len(whole))
	err := g.convene(ctx, forVerify, whole, all)
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	for r, w := range all {
		if w[12] != 0 {
			return nil, &RetryError{Call: g.guard.seq.call, Rank: plan.Rank(r), Because: "can't read its memory", Err: errUnread}
		}
	}
	same, sizes := true, false
	for _, w := range all {
		same = same && string(w) == string(whole)
		sizes = sizes || string(w[:8]) != string(whole[:8])
	}
	switch {
	case same:
		return nil, nil //nolint:nilnil // nil means no difference
	case sizes:
		d := &Difference{}
		for _, w := range all {
			d.Sizes = append(d.Sizes, devices.Size(binary.LittleEndian.Uint64(w)))
		}
		return d, nil
	}
	return g.verifyBlocks(ctx, v, sums)
}

// sumsOf returns the checksums of all blocks of a view.
func sumsOf(ctx context.Context, v domain.View) ([]byte, error) {
	blocks := (v.Size() + VerifyBlock - 1) / VerifyBlock
	sums := make([]byte, 0, blocks*sumSize)
	var piece []byte
	if v.Size() > 0 {
		if err := v.Buffer().Hold(); err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		defer v.Buffer().Drop()
	}
	table := crc32.MakeTable(crc32.Castagnoli) // which processors support in hardware
	for off := devices.Size(0); off < v.Size(); off += VerifyBlock {
		n := min(VerifyBlock, v.Size()-off)
		at := v.Offset() + devices.Offset(off)
		p := v.Buffer().Host(at, n)
		if p == nil {
			if piece == nil {
				piece = make([]byte, VerifyBlock)
			}
			p = piece[:n]
			if err := v.Buffer().Load(ctx, transport.HostSpan(p), at); err != nil {
				return nil, fmt.Errorf("verify: %w", err)
			}
		}
		sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(p, table))
	}
	return sums, nil
}

// verifyBlocks compares all blocks.
//
// +checklocks:g.mu
func (g *Group) verifyBlocks(ctx context.Context, v domain.View, sums []byte) (*Difference, error) {
	d := &Difference{}
	for from := 0; from < len(sums); from += roundSums * sumSize {
		mine := sums[from:min(from+roundSums*sumSize, len(sums))]
		all := rows(g.Size(), len(mine))
		if err := g.convene(ctx, forVerify, mine, all); err != nil {
			return nil, err
		}
		for i := 0; i < len(mine); i += sumSize {
			odd := oddOnes(all, i)
			if odd == nil {
				continue
			}
			block := uint64(from+i) / sumSize
			off := devices.Size(block) * VerifyBlock
			d.Blocks = append(d.Blocks, BlockDifference{
				Block: block, Ranks: odd,
				Range: devices.Range{Off: devices.Offset(off), Len: min(VerifyBlock, v.Size()-off)},
			})
		}
	}
	return d, nil
}

// oddOnes returns the ranks whose checksum at i differs from the majority's.
func oddOnes(all [][]byte, i int) []plan.Rank {
	best, votes := "", 0
	for _, candidate := range all {
		sum, n := string(candidate[i:i+sumSize]), 0
		for _, other := range all {
			if string(other[i:i+sumSize]) == sum {
				n++
			}
		}
		if n > votes {
			best, votes = sum, n
		}
	}
	if votes == len(all) {
		return nil
	}
	var odd []plan.Rank
	for r, other := range all {
		if string(other[i:i+sumSize]) != best {
			odd = append(odd, plan.Rank(r))
		}
	}
	return odd
}
