package badgerkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"
)

// tableScan is the result of reading one table.
type tableScan struct {
	id   uint64
	high uint64 // the highest version in it
	err  error
}

func (t *tableScan) name() string { return table.IDToFilename(t.id) }

// verifyTables reads every byte of the given tables. Badger opens tables in goroutines of
// its own and panics there if it cannot read one, which would end the process, and it skips
// a table whose index is damaged; so a damaged table has to be found before.
func (read readerAt) verifyTables(dir string, ids []uint64) []tableScan {
	slices.Sort(ids)
	out := make([]tableScan, len(ids))
	next := make(chan int)
	var work sync.WaitGroup
	for range min(len(ids), runtime.GOMAXPROCS(0)) {
		work.Go(func() {
			var buf []byte
			for i := range next {
				t := &out[i]
				t.id = ids[i]
				var c contents
				if c, t.err = read.file(filepath.Join(dir, t.name()), buf); t.err == nil {
					t.high, t.err = verifyTable(c.data)
					buf = c.data
				}
				if c.unread > 0 {
					t.err = unreadable(c.unread)
				}
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	work.Wait()
	return out
}

// verifyTable checks a table, and returns its highest version, which is recorded in its
// index:
//
//	blocks … | index | index length:4 | checksum | checksum length:4
func verifyTable(data []byte) (high uint64, err error) {
	index, end, err := indexOf(data)
	if err != nil {
		return 0, err
	}
	at := 0
	var o fb.BlockOffset
	for i := range index.OffsetsLength() {
		if !index.Offsets(&o, i) || int(o.Offset()) != at || int(o.Len()) > end-at {
			return index.MaxVersion(), fmt.Errorf("block %d does not start where block %d ends", i, i-1)
		}
		if _, err := blockOf(data[at : at+int(o.Len())]); err != nil {
			return index.MaxVersion(), fmt.Errorf("block %d at %d: %w", i, at, err)
		}
		at += int(o.Len())
	}
	if at == 0 || at != end {
		return index.MaxVersion(), fmt.Errorf("blocks end at %d instead of %d", at, end)
	}
	return index.MaxVersion(), nil
}

// indexOf returns the index of a table and its offset.
func indexOf(data []byte) (*fb.TableIndex, int, error) {
	rest, sum, err := splitLast(data)
	if err != nil {
		return nil, 0, err
	}
	blocks, index, err := splitLast(rest)
	switch {
	case err != nil:
	case len(index) < 8: // a file of zeros has the right checksum for an empty index
		err = errors.New("missing")
	default:
		err = verifySum(index, sum)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("index: %w", err)
	}
	return fb.GetRootAsTableIndex(index, 0), len(blocks), nil
}

// blockOf checks a block, and returns its data:
//
//	data | checksum | checksum length:4
func blockOf(block []byte) ([]byte, error) {
	data, sum, err := splitLast(block)
	if err == nil {
		err = verifySum(data, sum)
	}
	return data, err
}

// splitLast splits off the last part of data, which is followed by its length.
func splitLast(data []byte) (rest, part []byte, err error) {
	if len(data) < 4 {
		return nil, nil, fmt.Errorf("truncated: %d bytes, less than a length", len(data))
	}
	end := len(data) - 4
	n := int64(binary.BigEndian.Uint32(data[end:]))
	if n > int64(end) {
		return nil, nil, fmt.Errorf("a part of %d bytes cannot end at %d", n, end)
	}
	return data[:end-int(n)], data[end-int(n) : end], nil
}

func verifySum(data, sum []byte) error {
	var want pb.Checksum
	if err := proto.Unmarshal(sum, &want); err != nil {
		return err
	}
	if want.Algo != pb.Checksum_CRC32C && want.Algo != pb.Checksum_XXHash64 {
		return errors.New("unknown kind of checksum")
	}
	return y.VerifyChecksum(data, &want)
}
