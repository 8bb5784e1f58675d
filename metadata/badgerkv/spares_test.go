package badgerkv_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestTablesAreAnnounced has compactions rewrite a store: before each of their tables there
// must be a check whether one can be created.
func TestTablesAreAnnounced(t *testing.T) {
	const lives = 7 // each leaves a table, more than may wait for a compaction
	dir, looks := t.TempDir(), 0
	for life := range lives {
		kv := open(t, dir)
		setKeys(t, kv, 1000*life, 1000*(life+1))
		if err := kv.Close(); err != nil {
			t.Fatal(err)
		}
		looks += kv.Looks()
	}
	kv := open(t, dir)
	if err := kv.Flatten(); err != nil {
		t.Fatal(err)
	}
	tables := kv.Compacted()
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
	if looks += kv.Looks(); looks < tables || tables == 0 {
		t.Errorf("%d looks before %d tables were made", looks, tables)
	}
}

// TestNoRoomForNames fills a disk, and a directory on it until the directory needs another
// block: await must wait until there is space, and files can be created then.
func TestNoRoomForNames(t *testing.T) {
	onDisk(t, func(t *testing.T, dir string) {
		records := filepath.Join(dir, "records")
		if err := os.Mkdir(records, 0o700); err != nil {
			t.Fatal(err)
		}
		f := start(t, fillDir, dir)
		f.ask(t, "fill")
		const most = 10_000
		made := makeFiles(t, records, 0, most)
		if made == most {
			t.Skip("names take no space on this file system")
		}
		self, err := os.Open(records)
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close() //nolint:errcheck // only read
		there := make(chan struct{})
		go func() {
			defer close(there)
			badgerkv.AwaitSpares(self)
		}()
		select {
		case <-there:
			t.Fatal("files could be made on a full disk")
		case <-time.After(200 * time.Millisecond):
		}
		f.ask(t, "free")
		select {
		case <-there:
		case <-time.After(time.Minute):
			t.Fatal("files are waited for although there is space")
		}
		f.ask(t, "fill")
		if again := makeFiles(t, records, most, 8); again != 8 {
			t.Errorf("%d files could be made on a disk that was filled again", again)
		}
		entries, err := os.ReadDir(records)
		if err != nil || len(entries) != made+8 {
			t.Errorf("%d files of %d, %v", len(entries), made+8, err)
		}
	})
}

// makeFiles creates up to n empty files, until there is no space, and returns their number.
func makeFiles(t *testing.T, dir string, first, n int) (made int) {
	t.Helper()
	for ; made < n; made++ {
		err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.sst", first+made)), nil, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			return made
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return made
}
