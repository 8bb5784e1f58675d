package badgerkv

import (
	"encoding/binary"

	"github.com/dgraph-io/badger/v4/fb"
)

// salvageTable calls each with every entry in the intact blocks of a table. It returns the
// number of bad blocks and of all blocks; for a table without an index, the number of
// unreadable bytes at its end and -1.
func salvageTable(data []byte, each func(entry)) (lost, total int) {
	index, end, err := indexOf(data)
	if err != nil {
		return salvageBlocks(data, each), -1
	}
	var o fb.BlockOffset
	total = index.OffsetsLength()
	for i := range total {
		ok := index.Offsets(&o, i) && int64(o.Offset())+int64(o.Len()) <= int64(end)
		if ok {
			ok = salvageBlock(data[o.Offset():o.Offset()+o.Len()], each)
		}
		if !ok {
			lost++
		}
	}
	return lost, total
}

// salvageBlocks finds blocks by their checksums, and returns the number of bytes after the
// last one. A value can't imitate the end of a block, because the checksum covers the stamp
// that precedes the value, which no user knows.
func salvageBlocks(data []byte, each func(entry)) int {
	const shortest, longest = 2, 16 // checksums
	start := 0
	for at := 4; at <= len(data); at++ {
		n := binary.BigEndian.Uint32(data[at-4:])
		if n < shortest || n > longest || at-start < int(n)+8 {
			continue
		}
		if salvageBlock(data[start:at], each) {
			start = at
			at += 3
		}
	}
	return len(data) - start
}

// salvageBlock reads one block:
//
//	entries … | their offsets:4 … | count:4
//
// An entry consists of the length of the prefix that its key shares with the first entry's,
// the length of the rest, the rest, and the value: meta | user's meta | expiry | value.
func salvageBlock(block []byte, each func(entry)) bool {
	data, err := blockOf(block)
	if err != nil || len(data) < 4 {
		return false
	}
	n := int64(binary.BigEndian.Uint32(data[len(data)-4:]))
	places := int64(len(data)) - 4 - 4*n
	if places < 0 {
		return false
	}
	var base []byte
	for i := range n {
		from, to := int64(binary.NativeEndian.Uint32(data[places+4*i:])), places
		if i+1 < n {
			to = int64(binary.NativeEndian.Uint32(data[places+4*(i+1):]))
		}
		if from > to || to > places {
			return false
		}
		e, ok := parseTableEntry(base, data[from:to])
		if !ok {
			return false
		}
		if base == nil {
			base = e.key
		}
		each(e)
	}
	return true
}

// parseTableEntry parses one entry of a block.
func parseTableEntry(base, data []byte) (e entry, ok bool) {
	const header, version = 4, 8
	if len(data) < header {
		return e, false
	}
	overlap, diff := int(binary.NativeEndian.Uint16(data)), int(binary.NativeEndian.Uint16(data[2:]))
	data = data[header:]
	if overlap > len(base) || diff+2 > len(data) || overlap+diff <= version {
		return e, false
	}
	e.key = append(base[:overlap:overlap], data[:diff]...)
	e.meta = data[diff]
	_, size := binary.Uvarint(data[diff+2:])
	if size <= 0 {
		return e, false
	}
	e.value = data[diff+2+size:]
	return e, true
}
