package badgerkv

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4/y"
	"golang.org/x/sys/unix"
)

// witnessFile is the witness beside the records.
const witnessFile = "WITNESS"

// A witness is a page: a head that is written once for each start, and numbers that
// are stored while the store is open. Numbers have a checksum of their own.
const (
	witnessMagic = "hmcfs witness 1\n"
	witnessSize  = 4096
	headSize     = 76  // magic | id | was | boot | directory | checksum
	versionAt    = 128 // the highest version that was acknowledged
	cutAt        = 136 // 1 until what a cut left without a record is settled
)

// token is a random number that tells one thing from another.
type token [16]byte

// witness is a page as it was found.
type witness struct {
	id      token  // of the store
	was     token  // of the damaged store that this one was brought back from
	boot    token  // of the machine's start
	dir     uint64 // names the directory of the store
	version uint64
	sure    bool // version could be read
	cut     bool
}

// seal makes a number that tells whether it is whole.
func seal(n uint64) uint64 { return n<<16 | n*0x9e3779b97f4a7c15>>48 }

// unseal returns the number, and whether it is whole.
func unseal(sealed uint64) (uint64, bool) {
	n := sealed >> 16
	return n, seal(n) == sealed
}

func (w *witness) encode() []byte {
	page := make([]byte, witnessSize)
	head := append(page[:0], witnessMagic...)
	head = append(head, w.id[:]...)
	head = append(head, w.was[:]...)
	head = append(head, w.boot[:]...)
	head = binary.LittleEndian.AppendUint64(head, w.dir)
	binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, y.CastagnoliCrcTable))
	var cut uint64
	if w.cut {
		cut = 1
	}
	binary.NativeEndian.PutUint64(page[versionAt:], seal(w.version))
	binary.NativeEndian.PutUint64(page[cutAt:], seal(cut))
	return page
}

// witness reads a page; nil when there is none, or none that can be believed.
func (read readerAt) witness(path string) (*witness, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	page := make([]byte, witnessSize)
	_, err = read.all(f, page)
	if closed := f.Close(); closed != nil || err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, closed)
	}
	if err != nil || !bytes.HasPrefix(page, []byte(witnessMagic)) ||
		crc32.Checksum(page[:headSize-4], y.CastagnoliCrcTable) != binary.LittleEndian.Uint32(page[headSize-4:]) {
		return nil, nil
	}
	w := &witness{dir: binary.LittleEndian.Uint64(page[64:])}
	copy(w.id[:], page[16:])
	copy(w.was[:], page[32:])
	copy(w.boot[:], page[48:])
	w.version, w.sure = unseal(binary.NativeEndian.Uint64(page[versionAt:]))
	cut, ok := unseal(binary.NativeEndian.Uint64(page[cutAt:]))
	w.cut = cut != 0 || !ok
	return w, nil
}

// writeWitness puts a page in place of another.
func writeWitness(path string, w *witness) error {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(w.encode())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// witnesses are the pages of an open store.
type witnesses struct {
	pages [][]byte
	paths []string
}

// openWitnesses writes and maps pages.
func openWitnesses(w *witness, paths []string) (_ *witnesses, err error) {
	out := &witnesses{paths: paths}
	defer func() {
		if err != nil {
			err = fmt.Errorf("witness of the records: %w", errors.Join(err, out.close()))
		}
	}()
	for _, path := range paths {
		if err = writeWitness(path, w); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		page, err := unix.Mmap(int(f.Fd()), 0, witnessSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out.pages = append(out.pages, page)
	}
	return out, nil
}

// saw stores that a commit was acknowledged.
func (w *witnesses) saw(version uint64) {
	for _, page := range w.pages {
		word := wordAt(page, versionAt)
		for old := word.Load(); old>>16 < version && !word.CompareAndSwap(old, seal(version)); {
			old = word.Load()
		}
	}
}

// settle stores that nothing without a record is left.
func (w *witnesses) settle() {
	for _, page := range w.pages {
		wordAt(page, cutAt).Store(seal(0))
	}
}

func (w *witnesses) close() error {
	var errs []error
	for _, page := range w.pages {
		errs = append(errs, unix.Munmap(page))
	}
	w.pages = nil
	return errors.Join(errs...)
}

// newToken draws a token.
func newToken() (t token, err error) {
	_, err = rand.Read(t[:])
	return t, err
}

// stamp returns the number, never 0, that entries of the store with this id have as
// their expiry, which lies beyond all times. Users can't see it, so that a value can't
// hold what would be taken for an entry.
func (t token) stamp() uint64 { return 1<<62 | binary.LittleEndian.Uint64(t[:])>>2 }

// bootToken is the same until the machine starts again; zero when that is not known.
func bootToken() (t token) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return t
	}
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(data)), "-", ""))
	if err == nil && len(id) == len(t) {
		copy(t[:], id)
	}
	return t
}

// nameOf stands for a directory's path in a witness.
func nameOf(dir string) uint64 {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(dir)) // never fails
	return h.Sum64()
}
