package badgerkv

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"github.com/dgraph-io/badger/v4/y"
)

// The format of Badger's logs and tables.
const (
	logHeader = 20 // bytes before the first entry: a key number, which is 0, and 12 random bytes

	bitDelete = 1 << 0 // the entry deletes its key
	bitTxn    = 1 << 6 // the entry is part of a commit
	bitFinTxn = 1 << 7 // the entry ends a commit
)

// endKey is the key of the entry that ends a commit.
const endKey = "!badger!txn"

// longestKey bounds the length of an entry's key, including the version.
const longestKey = 1 << 16

// entry is one entry of a log or a table. Its key ends with the version.
type entry struct {
	meta       byte
	expiry     uint64 // the stamp of the store that wrote it, or 0
	key, value []byte
	size       int // of the entry in the log, in bytes
}

func (e *entry) version() uint64 { return y.ParseTs(e.key) }

// parseEntry parses the entry at the start of data:
//
//	meta | user's meta | key length | value length | expiry | key | value | checksum:4
func parseEntry(data []byte) (e entry, ok bool) {
	if len(data) < 2 {
		return e, false
	}
	e.meta = data[0]
	at := 2
	var numbers [3]uint64
	for i := range numbers {
		v, n := binary.Uvarint(data[at:])
		if n <= 0 {
			return e, false
		}
		numbers[i], at = v, at+n
	}
	klen, vlen := numbers[0], numbers[1]
	e.expiry = numbers[2]
	left := uint64(len(data) - at)
	if klen == 0 || klen > longestKey || vlen > left || klen+vlen+crc32.Size > left {
		return e, false
	}
	e.key = data[at : at+int(klen)]
	at += int(klen)
	e.value = data[at : at+int(vlen)]
	at += int(vlen)
	e.size = at + crc32.Size
	return e, crc32.Checksum(data[:at], y.CastagnoliCrcTable) == binary.BigEndian.Uint32(data[at:])
}

// logScan is the content of a log.
type logScan struct {
	contents

	name   string
	number int
	keyed  bool // the header names an encryption key, which no log of this store has
	// stamp is the stamp of all entries that set a value; 0 in logs of an earlier hmcfs.
	stamp uint64
	// first and last are the versions of the first and last commit; 0 if there is none.
	first, last uint64
	// end is the offset after the last complete commit; used is that after the last byte.
	end, used int
}

// torn reports whether there are bytes after the last complete commit.
func (l *logScan) torn() bool { return l.used > l.end }

// log reads a log as Badger replays it, up to the first incomplete entry. stamp is the
// stamp to assume for its entries if none of them can be read.
func (read readerAt) log(path string, stamp uint64) (*logScan, error) {
	c, err := read.written(path)
	if err != nil {
		return nil, err
	}
	l := &logScan{contents: c, used: len(bytes.TrimRight(c.data, "\x00")), stamp: stamp}
	if len(c.data) >= logHeader {
		l.keyed = binary.BigEndian.Uint64(c.data) != 0
	}
	l.end = min(logHeader, l.used)
	l.replay(logHeader, 0, func(commit []entry, end int) {
		l.last, l.end = commit[0].version(), end
		if l.first == 0 {
			l.first = l.last
			l.stamp = stampOf(commit)
		}
	})
	return l, nil
}

// replay calls each for every complete commit from offset at on, as long as versions rise
// from above. It returns the offset of the first entry that is not part of one.
func (l *logScan) replay(at int, above uint64, each func(commit []entry, end int)) int {
	var commit []entry
	for at < len(l.data) {
		e, ok := parseEntry(l.data[at:])
		if !ok {
			break
		}
		v := e.version()
		switch {
		case e.meta&bitFinTxn != 0:
			ended, err := strconv.ParseUint(string(e.value), 10, 64)
			if err != nil || len(commit) == 0 || commit[0].version() != ended {
				return at
			}
		case v <= above || len(commit) > 0 && (e.meta&bitTxn == 0 || commit[0].version() != v):
			return at
		default:
			commit = append(commit, e)
		}
		at += e.size
		if e.meta&(bitTxn|bitFinTxn) != bitTxn {
			above = commit[0].version()
			each(commit, at)
			commit = commit[:0]
		}
	}
	return at
}

// stampOf returns the stamp of a commit; 0 if it has none.
func stampOf(commit []entry) (stamp uint64) {
	for _, e := range commit {
		stamp = max(stamp, e.expiry)
	}
	return stamp
}

// next returns the offset of the first complete entry at or after at that has the log's
// stamp; -1 if there is none. Data within a value can't have it: the stamp is known only to
// the owner of the records.
func (l *logScan) next(at int) int {
	if l.stamp == 0 {
		return -1
	}
	// A header has 4 to 8 bytes before the stamp.
	const shortest, longest = 4, 8
	stamp := binary.AppendUvarint(nil, l.stamp)
	for from := at; ; at++ {
		n := bytes.Index(l.data[min(at, len(l.data)):], stamp)
		if n < 0 {
			return -1
		}
		at += n
		for begin := at - shortest; begin >= max(from, at-longest); begin-- {
			if e, ok := parseEntry(l.data[begin:]); ok && e.expiry == l.stamp {
				return begin
			}
		}
	}
}

// behind counts the complete entries at or after at that end a commit. In a log without a
// stamp, a value may contain data that looks like one.
func (l *logScan) behind(at int) (commits int) {
	if l.stamp == 0 {
		return bytes.Count(l.data[at:], []byte(endKey))
	}
	for at = l.next(at); at >= 0; at = l.next(at) {
		for e, ok := parseEntry(l.data[at:]); ok; e, ok = parseEntry(l.data[at:]) {
			at += e.size
			if e.meta&bitFinTxn != 0 {
				commits++
			}
		}
	}
	return commits
}

// resume returns the offset at which complete entries continue after a bad one; -1 if they
// don't. That is the next entry with the stamp, or the end of the bad entry by its own
// lengths, if complete entries lead from there to the one with the stamp: entries that
// delete have no stamp.
func (l *logScan) resume(at int) int {
	next := l.next(at + 1)
	bad, _ := parseEntry(l.data[at:])
	if bad.size == 0 {
		return next
	}
	n := at + bad.size
	for n < next {
		e, ok := parseEntry(l.data[n:])
		if !ok {
			break
		}
		n += e.size
	}
	if n == next {
		return at + bad.size
	}
	return next
}
