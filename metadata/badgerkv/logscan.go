package badgerkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"strconv"

	"github.com/dgraph-io/badger/v4/y"
	"golang.org/x/sys/unix"
)

// What Badger has in its logs and tables.
const (
	logHeader = 20 // bytes before a log's first entry: the number of a key, which is 0, and 12 random ones

	bitDelete = 1 << 0 // the entry removes its key
	bitTxn    = 1 << 6 // the entry is one of a commit's
	bitFinTxn = 1 << 7 // the entry ends a commit
)

// endKey is the key of the entry that ends a commit.
const endKey = "!badger!txn"

// longestKey bounds the keys of entries, which end with their version.
const longestKey = 1 << 16

// entry is one entry of a log or a table. Its key ends with the version.
type entry struct {
	meta       byte
	key, value []byte
	size       int // in the log
}

func (e *entry) version() uint64 { return y.ParseTs(e.key) }

// parseEntry reads the entry with which data begins:
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
	name   string
	number int
	size   int64 // of the file
	data   []byte
	keyed  bool // the header names a key of encryption, which no log of ours has
	// first and last are the versions of its commits, 0 when there are none.
	first, last uint64
	// end is behind the last whole commit, and used behind the last byte.
	end, used int
}

// torn reports that there are bytes behind the last whole commit.
func (l *logScan) torn() bool { return l.used > l.end }

// readLog reads a log as Badger replays it, up to the first entry that is not whole.
func readLog(path string) (*logScan, error) {
	data, size, err := readData(path)
	if err != nil {
		return nil, err
	}
	l := &logScan{size: size, data: data, used: len(bytes.TrimRight(data, "\x00"))}
	if len(data) >= logHeader {
		l.keyed = binary.BigEndian.Uint64(data) != 0
	}
	l.end = min(logHeader, l.used)
	l.replay(logHeader, 0, func(commit []entry, end int) {
		l.last, l.end = commit[0].version(), end
		if l.first == 0 {
			l.first = l.last
		}
	})
	return l, nil
}

// replay calls each with every whole commit from a place on whose version is above
// that of the one before, and returns where the first entry begins that is none.
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

// behind counts the whole ends of commits from a place on.
func (l *logScan) behind(at int) (commits int) {
	const before = 5 // bytes of the header of such an entry
	for {
		n := bytes.Index(l.data[min(at, len(l.data)):], []byte(endKey))
		if n < 0 {
			return commits
		}
		at += n
		if at >= before {
			if e, ok := parseEntry(l.data[at-before:]); ok && e.meta&bitFinTxn != 0 {
				commits++
			}
		}
		at += len(endKey)
	}
}

// readData reads a file up to its last byte that was written: a log is made with a
// size that it seldom fills.
func readData(path string) (data []byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	size = st.Size()
	data = make([]byte, dataEnd(f, size))
	if _, err = f.ReadAt(data, 0); err != nil {
		return nil, size, err
	}
	return data, size, nil
}

// dataEnd returns where the hole begins with which a file ends.
func dataEnd(f *os.File, size int64) int64 {
	var end int64
	for end < size {
		data, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return end
		}
		if err == nil {
			end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil {
			return size
		}
	}
	return min(end, size)
}
