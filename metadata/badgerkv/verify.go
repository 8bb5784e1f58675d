package badgerkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"
)

// verifyTables looks at those parts of all tables that Badger reads when it
// opens them: the index and the last block. Badger opens tables in goroutines
// of its own and panics there when it cannot read one, which would end the
// process; so a damaged table has to be found before.
//
// Only tables that the manifest lists count. A death may leave one half
// written that is not listed yet; Badger removes it and replays its log.
func verifyTables(opts badger.Options) error {
	manifest, err := os.Open(filepath.Join(opts.Dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err != nil {
		return err
	}
	listed, _, err := badger.ReplayManifestFile(manifest, opts.ExternalMagicVersion, opts)
	if err = errors.Join(err, manifest.Close()); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	for id := range listed.Tables {
		name := table.IDToFilename(id)
		if err := verifyTable(filepath.Join(opts.Dir, name)); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}

// verifyTable checks one table:
//
//	blocks … | index | index length:4 | checksum | checksum length:4
func verifyTable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r := tailReader{r: f, at: info.Size()}
	sum := r.take(int64(r.number()))
	index := r.take(int64(r.number()))
	if r.err != nil {
		return r.err
	}
	if err := verifySum(index, sum); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	table := fb.GetRootAsTableIndex(index, 0)
	var last fb.BlockOffset
	if n := table.OffsetsLength(); n == 0 || !table.Offsets(&last, n-1) {
		return fmt.Errorf("no blocks")
	}
	if end := int64(last.Offset()) + int64(last.Len()); end > r.at {
		return fmt.Errorf("last block ends at %d, beyond %d", end, r.at)
	}
	r.at = int64(last.Offset()) + int64(last.Len())
	return r.verifyBlock(int64(last.Len()))
}

// verifyBlock checks the block that ends where the reader is:
//
//	data | checksum | checksum length:4
func (t *tailReader) verifyBlock(size int64) error {
	sum := t.take(int64(t.number()))
	data := t.take(size - 4 - int64(len(sum)))
	if t.err != nil {
		return t.err
	}
	if err := verifySum(data, sum); err != nil {
		return fmt.Errorf("last block: %w", err)
	}
	return nil
}

func verifySum(data, sum []byte) error {
	var want pb.Checksum
	if err := proto.Unmarshal(sum, &want); err != nil {
		return err
	}
	return y.VerifyChecksum(data, &want)
}

// tailReader reads a file from its end. The first fault sticks.
type tailReader struct {
	r   io.ReaderAt
	at  int64
	err error
}

// take reads the n bytes before the present place, and goes there.
func (t *tailReader) take(n int64) []byte {
	if t.err == nil && (n < 0 || n > t.at) {
		t.err = fmt.Errorf("%d bytes should end at %d", n, t.at)
	}
	if t.err != nil {
		return nil
	}
	t.at -= n
	buf := make([]byte, n)
	_, t.err = t.r.ReadAt(buf, t.at)
	return buf
}

// number reads a length.
func (t *tailReader) number() uint32 {
	buf := t.take(4)
	if len(buf) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(buf)
}
