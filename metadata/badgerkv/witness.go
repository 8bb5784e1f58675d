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

// witnessFile is the name of the witness in the store's directory.
const witnessFile = "WITNESS"

// A witness is one page: a header, written once per start, and numbers that are updated
// while the store is open. Each number contains its own checksum.
const (
	witnessMagic = "hmcfs witness 1\n"
	witnessSize  = 4096
	headSize     = 76  // magic | id | was | boot | directory | checksum
	versionAt    = 128 // the highest acknowledged version
	cutAt        = 136 // 1 until data that a cut left without a record is cleaned up
)

// token is a random identifier.
type token [16]byte

// witness is the decoded content of a witness page.
type witness struct {
	id      token  // the store's ID
	was     token  // the ID of the damaged store that this one was restored from
	boot    token  // identifies the boot of the machine
	dir     uint64 // a hash of the path of the store's directory
	version uint64
	sure    bool // version has a valid checksum
	cut     bool
}

// seal combines a number with a checksum.
func seal(n uint64) uint64 { return n<<16 | n*0x9e3779b97f4a7c15>>48 }

// unseal returns the number, and whether its checksum is valid.
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

// witness reads a page; nil if there is none, or none that is valid.
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

// writeWitness replaces a page atomically.
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

// witnesses are the mapped witness pages of an open store.
type witnesses struct {
	pages [][]byte
	paths []string
}

// mapWitness writes a page and maps it. One that these records have already, on this boot of the machine, is used as it is,
// since a daemon that died may leave no room for another.
func mapWitness(path string, w *witness) ([]byte, error) {
	page, err := mapPage(path)
	if err == nil && !bytes.Equal(page[:headSize], w.encode()[:headSize]) {
		err = errors.Join(unix.Munmap(page), errNoWitness)
	}
	if err != nil {
		if err = writeWitness(path, w); err != nil {
			return nil, err
		}
		return mapPage(path)
	}
	if w.cut {
		wordAt(page, cutAt).Store(seal(1))
	}
	wordAt(page, versionAt).Store(seal(w.version))
	return page, nil
}

// errNoWitness reports that a file can't be used as the witness of these records.
var errNoWitness = errors.New("badgerkv: no witness of these records")

// mapPage maps a file with the size of a witness, which has no other name.
func mapPage(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != witnessSize || st.Nlink != 1) {
		err = errNoWitness
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	page, err := unix.Mmap(int(f.Fd()), 0, witnessSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return page, errors.Join(err, f.Close())
}

// openWitnesses writes and maps the pages.
func openWitnesses(w *witness, paths []string) (_ *witnesses, err error) {
	out := &witnesses{paths: paths}
	defer func() {
		if err != nil {
			err = fmt.Errorf("witness of the records: %w", errors.Join(err, out.close()))
		}
	}()
	for _, path := range paths {
		page, err := mapWitness(path, w)
		if err != nil {
			return nil, err
		}
		out.pages = append(out.pages, page)
	}
	return out, nil
}

// saw records that a commit was acknowledged.
func (w *witnesses) saw(version uint64) {
	for _, page := range w.pages {
		word := wordAt(page, versionAt)
		for old := word.Load(); old>>16 < version && !word.CompareAndSwap(old, seal(version)); {
			old = word.Load()
		}
	}
}

// cutOff records that data may be left without a record.
func (w *witnesses) cutOff() {
	for _, page := range w.pages {
		wordAt(page, cutAt).Store(seal(1))
	}
}

// settle records that no data without a record is left.
func (w *witnesses) settle() {
	for _, page := range w.pages {
		wordAt(page, cutAt).Store(seal(0))
	}
}

func (w *witnesses) close() error {
	if w == nil {
		return nil
	}
	var errs []error
	for _, page := range w.pages {
		errs = append(errs, unix.Munmap(page))
	}
	w.pages = nil
	return errors.Join(errs...)
}

// newToken returns a random token.
func newToken() (t token) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

// stamp returns the number, never 0, that the entries of the store with this ID have as
// their expiry, which is too far in the future to take effect. Users can't see it, so they
// can't store a value that would be mistaken for an entry.
func (t token) stamp() uint64 { return 1<<62 | binary.LittleEndian.Uint64(t[:])>>2 }

// bootToken returns a token that stays the same until the next boot; zero if unknown.
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

// nameOf returns a hash of a directory's path, for a witness.
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
