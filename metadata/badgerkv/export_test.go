package badgerkv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4/y"
	"golang.org/x/sys/unix"
)

// Flatten runs all compactions.
func (kv *KV) Flatten() error { return kv.db.Flatten(1) }

// Looks counts the checks whether a table can be created.
func (kv *KV) Looks() int { return int(kv.spares.looks.Load()) }

// Compacted counts the tables that compactions have created.
func (kv *KV) Compacted() (n int) {
	for _, t := range kv.db.Tables() {
		if t.Level > 0 {
			n++
		}
	}
	return n
}

// AwaitSpares returns when files can be created in a directory.
func AwaitSpares(dir *os.File) { (&spares{dir: dir}).await() }

// Retarget turns a witness into one of another directory.
func Retarget(page []byte, dir string) []byte {
	page = append([]byte(nil), page...)
	binary.LittleEndian.PutUint64(page[64:], nameOf(dir))
	binary.LittleEndian.PutUint32(page[headSize-4:], crc32.Checksum(page[:headSize-4], y.CastagnoliCrcTable))
	return page
}

// Reboot turns a witness into one of an earlier boot of the machine.
func Reboot(page []byte) []byte {
	page = append([]byte(nil), page...)
	page[48]++
	binary.LittleEndian.PutUint32(page[headSize-4:], crc32.Checksum(page[:headSize-4], y.CastagnoliCrcTable))
	return page
}

// BadSectors makes a range of the file with a name unreadable, as by a failing disk.
func (o Options) BadSectors(name string, from, to int64) Options {
	o.readAt = func(f *os.File, p []byte, off int64) (int, error) {
		if filepath.Base(f.Name()) == name && off < to && off+int64(len(p)) > from {
			return 0, unix.EIO
		}
		return f.ReadAt(p, off)
	}
	return o
}

// Spoil adds a change that Badger refuses to the active layer.
func (kv *KV) Spoil() {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.version++
	kv.active.add(kv.version, commit{writes: []change{{}}})
}

// Waits reports whether a commit waits to be written.
func (kv *KV) Waits() bool {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	return kv.active.last > 0 || kv.frozen != nil
}

// UnderWay returns the bytes of the commits in progress.
func (kv *KV) UnderWay() int64 {
	kv.space.mu.Lock()
	defer kv.space.mu.Unlock()
	return kv.space.underWay
}

// FlushParts is Flush. It returns the bytes of the commits in progress before and when all is in Badger, but not settled.
func (kv *KV) FlushParts() (before, then int64, err error) {
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	before = kv.UnderWay()
	l, err := kv.freeze(math.MaxUint64)
	if err != nil {
		return 0, 0, err
	}
	left, err := kv.writeLayer(l)
	then = kv.UnderWay()
	kv.settled(l, left)
	return before, then, err
}

// WaitsFor returns for how long the timer that writes the last commit was set.
func (kv *KV) WaitsFor() time.Duration {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	return kv.waits
}

// LookForJournal looks whether the journal is where the next process finds it, as the first change of a layer does.
func (kv *KV) LookForJournal() { kv.keepJournal() }

// FlushAfter sets the time after which changes of UpdateSoon are written, before there are any. With a pause
// of a time they are written before that.
func (kv *KV) FlushAfter(d, pause time.Duration) { kv.flushAfter, kv.pauseAfter = d, pause }

// Resume replays a journal.
func (kv *KV) Resume(ctx context.Context, f *os.File) error {
	return kv.resume(ctx, Options{Journal: f})
}

// FlushTo returns when the commits up to a version are in Badger.
func (kv *KV) FlushTo(version uint64) error { return kv.flush(version) }

// Version returns that of the last commit.
func (kv *KV) Version() uint64 {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	return kv.version
}

// Flush writes all changes to Badger.
func (kv *KV) Flush() error { return kv.flush(math.MaxUint64) }

// OfAnotherBoot makes a journal one of another boot of the machine.
func OfAnotherBoot(path string) error {
	return rewriteHead(path, func(head []byte) { copy(head[bootAt:], "another boot") })
}

// OfAnotherVersion makes a journal one of another version.
func OfAnotherVersion(path string) error {
	return rewriteHead(path, func(head []byte) { head[len("hmcfs journal ")] = '9' })
}

// OfVersion2 makes a journal one of version 2, which was a new one when it was taken over: that version leaves bytes as they are which
// are the checksum of the head now, and has numbers without checksums.
func OfVersion2(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len("hmcfs journal ")] = '2'
	for at, n := range map[int]uint64{64: 7, 72: 20, 80: 10, 88: 1 << 60, 96: 1 << 61, orderAt: 3, orderAt + 8: 2, endAt: 4711, endAt + 8: 0} {
		binary.LittleEndian.PutUint64(data[at:], n)
	}
	return os.WriteFile(path, data, 0o600)
}

// rewriteHead changes the head of a journal.
func rewriteHead(path string, change func(head []byte)) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	head := make([]byte, headSumAt)
	_, err = f.ReadAt(head, 0)
	change(head)
	_, werr := f.WriteAt(binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, y.CastagnoliCrcTable)), 0)
	return errors.Join(err, werr, f.Close())
}

// JournalHead and JournalHalf are where the commits of a journal begin, and the size of a half.
const (
	JournalHead = journalHead
	JournalHalf = journalHalf
)

// CommitsOf returns the commits of a journal of this version, as text, up to damage.
func CommitsOf(page []byte) (commits []string, err error) {
	j := &journal{page: page}
	if j.empty() {
		return nil, nil
	}
	if version, err := j.formatVersion(); err != nil || version != JournalVersion {
		return nil, err
	}
	for writes, err := range j.commits() {
		if err != nil {
			return commits, err
		}
		text := ""
		for _, w := range writes {
			text += fmt.Sprintf("%q %q %v;", w.key, w.value, w.deleted)
		}
		commits = append(commits, text)
	}
	return commits, nil
}

// ReadCommit returns the number of changes of the commit at the beginning of a half, whose checksum is made right if sign is set.
func ReadCommit(half []byte, signed bool) (changes int, size uint64, err error) {
	if signed && len(half) >= commitHead {
		sign(half)
		binary.LittleEndian.PutUint32(half[sumAt:], placed(contentSum(half), 0, 0))
	}
	writes, size, err := readCommit(half, 0, 0)
	return len(writes), size, err
}
