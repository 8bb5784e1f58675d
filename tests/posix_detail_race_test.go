package tests

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestOneOfManyCreatorsWins(t *testing.T) {
	const creators, rounds = 32, 10
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("source"), 1, 10)
		for how, try := range map[string]func(n int, name string) error{
			"O_EXCL": func(_ int, name string) error {
				fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
				if err == nil {
					err = unix.Close(fd)
				}
				return err
			},
			"mkdir": func(_ int, name string) error { return unix.Mkdir(name, 0o755) },
			"link":  func(_ int, name string) error { return unix.Link(p.path("source"), name) },
			"rename": func(n int, name string) error {
				mine := fmt.Sprintf("%s.%d", name, n)
				if err := unix.Mkdir(mine, 0o755); err != nil {
					return err
				}
				return unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
			},
		} {
			for round := range rounds {
				name := p.path(fmt.Sprintf("%s-%d", how, round))
				if won := race(t, creators, func(n int) error { return try(n, name) }); won != 1 {
					t.Errorf("%s: %d of %d created %s", how, won, creators, name)
				}
			}
		}
	})
}

// race lets n goroutines try concurrently and returns how many succeeded; the others must get
// EEXIST.
func race(t *testing.T, n int, try func(n int) error) int {
	t.Helper()
	start := make(chan struct{})
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			if err := try(i); err == nil {
				won.Add(1)
			} else {
				wantErrno(t, err, unix.EEXIST)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(won.Load())
}

// The records of the append tests: a header with writer, number and length, and content that
// depends on the writer.
const (
	appendWriters = 8
	appendEach    = 60
	recordHead    = 12
)

// record returns the n-th record of a writer; the lengths differ.
func record(writer, n int) []byte {
	b := make([]byte, recordHead+(writer*7919+n*104_729)%20_000)
	binary.LittleEndian.PutUint32(b, uint32(writer))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	kit.FillAt(b[recordHead:], uint64(writer), int64(n)<<20)
	return b
}

func TestAppendersDoNotTearRecords(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var wg sync.WaitGroup
		for w := range appendWriters {
			wg.Go(func() {
				err := withFile(p.path("log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, func(f *os.File) error {
					for n := range appendEach {
						if _, err := unix.Write(int(f.Fd()), record(w, n)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantRecords(t, p.path("log"))
	})
}

func TestAppendingProcessesDoNotTearRecords(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var wg sync.WaitGroup
		for w := range appendWriters {
			wg.Go(func() {
				// One file for each record, and a shell that appends each with one write.
				const script = `for n in "$1"/*; do dd if="$n" of="$2" bs=32k oflag=append conv=notrunc status=none || exit 1; done`
				dir := p.path(fmt.Sprintf("records-%d", w))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Error(err)
					return
				}
				for n := range appendEach / 4 {
					if err := os.WriteFile(fmt.Sprintf("%s/%04d", dir, n), record(w, n), 0o644); err != nil {
						t.Error(err)
					}
				}
				if out, err := exec.Command("sh", "-c", script, "sh", dir, p.path("log")).CombinedOutput(); err != nil {
					t.Errorf("append: %v: %s", err, out)
				}
			})
		}
		wg.Wait()
		wantRecordsOf(t, p.path("log"), appendEach/4)
	})
}

func wantRecords(t *testing.T, path string) {
	t.Helper()
	wantRecordsOf(t, path, appendEach)
}

// wantRecordsOf checks that a log has all records of each writer, complete and in the writer's
// order.
func wantRecordsOf(t *testing.T, path string, each int) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var next [appendWriters]int
	for at := 0; at < len(data); {
		if len(data)-at < recordHead {
			t.Fatalf("half a header at %d", at)
		}
		w, n := binary.LittleEndian.Uint32(data[at:]), binary.LittleEndian.Uint32(data[at+4:])
		if w >= appendWriters || int(n) != next[w] {
			t.Fatalf("record %d of writer %d at %d", n, w, at)
		}
		want := record(int(w), int(n))
		if got := data[at:min(at+len(want), len(data))]; kit.FirstDiff(got, want) >= 0 {
			t.Fatalf("record %d of writer %d at %d is torn at its byte %d", n, w, at, kit.FirstDiff(got, want))
		}
		next[w]++
		at += len(want)
	}
	for w, n := range next {
		if n != each {
			t.Errorf("%d records of writer %d, want %d", n, w, each)
		}
	}
}

func TestListingDuringRenames(t *testing.T) {
	const fixed, moving, listings = 1500, 300, 15
	everywhere(t, func(t *testing.T, p place) {
		for i := range fixed {
			must(t, unix.Mknod(p.path(fmt.Sprintf("fixed-%04d", i)), unix.S_IFREG|0o644, 0))
		}
		for i := range moving {
			must(t, unix.Mknod(p.path(fmt.Sprintf("moving-%d-a", i)), unix.S_IFREG|0o644, 0))
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { renameUntil(t, p, moving, stop) })
		for range listings {
			wantListedOnce(t, p.dir, fixed)
		}
		close(stop)
		wg.Wait()
	})
}

// renameUntil renames the moving files back and forth.
func renameUntil(t *testing.T, p place, moving int, stop <-chan struct{}) {
	t.Helper()
	for from, to := "a", "b"; ; from, to = to, from {
		for i := range moving {
			select {
			case <-stop:
				return
			default:
			}
			err := os.Rename(p.path(fmt.Sprintf("moving-%d-%s", i, from)), p.path(fmt.Sprintf("moving-%d-%s", i, to)))
			if err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// wantListedOnce checks that a listing has each of the unchanging names exactly once.
func wantListedOnce(t *testing.T, dir string, fixed int) {
	t.Helper()
	var names []string
	must(t, withFile(dir, os.O_RDONLY, func(d *os.File) (err error) {
		names, err = d.Readdirnames(-1)
		return err
	}))
	count := make(map[string]int)
	for _, n := range names {
		count[n]++
	}
	for i := range fixed {
		if n := fmt.Sprintf("fixed-%04d", i); count[n] != 1 {
			t.Errorf("%s is listed %d times", n, count[n])
		}
	}
}
