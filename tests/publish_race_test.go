package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// racer is one competitor for a publication.
type racer struct {
	got []byte
	err error
}

// receive opens a publication and reads it completely in pieces.
func (r *racer) receive(offer string, piece int) {
	f, err := os.Open(offer)
	if err != nil {
		r.err = err
		return
	}
	defer func() { _ = f.Close() }() // the file was only read
	buf := make([]byte, piece)
	for {
		n, err := f.Read(buf)
		r.got = append(r.got, buf[:n]...)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.err = err
			return
		}
	}
}

// move receives by rename.
func (r *racer) move(offer, to string) {
	if r.err = os.Rename(offer, to); r.err == nil {
		r.got, r.err = os.ReadFile(to)
	}
}

// wantOneWinner checks that one racer has all bytes, and all others have an error and fewer
// bytes.
func wantOneWinner(t *testing.T, racers []racer, seed uint64, size int) {
	t.Helper()
	won := 0
	for i := range racers {
		r := &racers[i]
		if d := kit.DiffAt(r.got, seed, 0); d >= 0 {
			t.Errorf("reader %d has bytes that differ at %d", i, d)
		}
		switch {
		case r.err == nil && len(r.got) == size:
			won++
		case r.err == nil:
			t.Errorf("reader %d has %d of %d bytes and no error", i, len(r.got), size)
		case !errors.Is(r.err, unix.ENOENT) && !errors.Is(r.err, unix.EIO):
			t.Errorf("reader %d: %v", i, r.err)
		case len(r.got) >= size:
			t.Errorf("reader %d has all bytes and %v", i, r.err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d readers have received it", won, len(racers))
	}
}

// TestPublishHasOneReceiver lets several racers compete, by reading and by renaming.
func TestPublishHasOneReceiver(t *testing.T) {
	const rounds, size = 60, 300_001
	onPublishers(t, func(t *testing.T, p place) {
		for round := range rounds {
			offer := p.publish(t, "t", uint64(round), size)
			racers := make([]racer, 2+round%3)
			var all sync.WaitGroup
			for i := range racers {
				all.Go(func() {
					if round%4 == 3 && i == 0 {
						racers[i].move(offer, p.path("received"))
					} else {
						racers[i].receive(offer, 1+size/(1+round%7))
					}
				})
			}
			all.Wait()
			wantOneWinner(t, racers, uint64(round), size)
			wantGone(t, offer)
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
	})
}

// TestPublishHasOneReceiverInStep lets two readers read all but the last byte: the first to
// request it receives the object.
func TestPublishHasOneReceiverInStep(t *testing.T) {
	const size = 20_000
	onPublishers(t, func(t *testing.T, p place) {
		for first := range 2 {
			offer := p.publish(t, "t", 1, size)
			files := []*os.File{open(t, offer, os.O_RDONLY), open(t, offer, os.O_RDONLY)}
			for _, f := range files {
				n, err := f.ReadAt(make([]byte, size-1), 0)
				if must(t, err); n != size-1 {
					t.Fatalf("read %d bytes", n)
				}
			}
			_, err := files[first].ReadAt(make([]byte, 1), size-1)
			must(t, err)
			_, err = files[1-first].ReadAt(make([]byte, 1), size-1)
			wantErrno(t, err, unix.EIO)
			// The close by the loser has no effect.
			must(t, files[1-first].Close())
			_, err = files[first].ReadAt(make([]byte, size), 0)
			must(t, err)
			must(t, files[first].Close())
			wantGone(t, offer)
		}
	})
}

// TestPublishCopiedByTwoPrograms lets programs that are not part of hmcfs compete.
func TestPublishCopiedByTwoPrograms(t *testing.T) {
	const size = 6<<20 + 1
	onPublishers(t, func(t *testing.T, p place) {
		out := t.TempDir()
		for round := range 4 {
			offer := p.publish(t, "t", uint64(round), size)
			copies := []string{filepath.Join(p.other(), "copy"), filepath.Join(out, "copy")}
			racers := make([]racer, len(copies))
			var all sync.WaitGroup
			for i, to := range copies {
				all.Go(func() {
					if err := exec.Command("cp", offer, to).Run(); err != nil {
						racers[i].err = unix.EIO
					}
				})
			}
			all.Wait()
			for i, to := range copies {
				got, err := os.ReadFile(to)
				if err == nil {
					// The loser may have created the file, but incompletely.
					racers[i].got = got
					must(t, os.Remove(to))
				}
				if racers[i].err != nil && kit.DiffAt(got, uint64(round), 0) >= 0 {
					racers[i].got = nil // it is not a copy of it
				}
			}
			wantOneWinner(t, racers, uint64(round), size)
			wantGone(t, offer)
		}
	})
}

// TestPublishReaderKilled kills a reader in the middle, and checks that another one receives
// everything.
func TestPublishReaderKilled(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		for _, program := range []string{"dd bs=64k if=%s", "cat %s"} {
			// The pipe is not read, so the reader blocks in the middle.
			from, to, err := os.Pipe()
			must(t, err)
			cmd := exec.Command("sh", "-c", "exec "+fmt.Sprintf(program, offer))
			cmd.Stdout = to
			must(t, cmd.Start())
			must(t, to.Close())
			_, err = io.ReadFull(from, make([]byte, 1000))
			must(t, err)
			must(t, cmd.Process.Kill())
			if cmd.Wait() == nil {
				t.Error("the reader has come to the end")
			}
			must(t, from.Close())
		}
		wantOffered(t, offer, 1, publishSize)
	})
}

// TestPublishSurvivesTheDaemon kills the daemon before, during and after delivery: the object
// is either delivered or published again, complete.
func TestPublishSurvivesTheDaemon(t *testing.T) {
	kit.Check(t)
	const size = 1<<20 + 333
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	for round, read := range []int{0, 1000, size - 1, size} {
		p := place{name: "host", dir: openDir(t, m.Path("host")), m: m}
		offer := p.publish(t, "t", uint64(round), size)
		f := open(t, offer, os.O_RDONLY)
		if read > 0 {
			got := make([]byte, read)
			_, err := io.ReadFull(f, got)
			must(t, err)
			if d := kit.DiffAt(got, uint64(round), 0); d >= 0 {
				t.Errorf("what was read differs at %d", d)
			}
		}
		m.Kill()
		if n, err := f.ReadAt(make([]byte, size), 0); n > 0 || err == nil {
			t.Errorf("of a dead daemon: %d bytes, %v", n, err)
		}
		_ = f.Close() // its daemon is dead
		m.Start()
		if read == size {
			wantGone(t, offer)
		} else {
			wantOffered(t, offer, uint64(round), size)
		}
	}
}

// TestPublishDaemonKilledInDelivery kills the daemon while a reader reads.
func TestPublishDaemonKilledInDelivery(t *testing.T) {
	kit.Check(t)
	const size = 24 << 20
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	for round := range 3 {
		p := place{name: "host", dir: openDir(t, m.Path("host")), m: m}
		offer := p.publish(t, "t", uint64(round), size)
		var r racer
		var reading sync.WaitGroup
		begun := make(chan struct{})
		reading.Go(func() {
			close(begun)
			r.receive(offer, 1<<20)
		})
		<-begun
		m.Kill()
		reading.Wait()
		m.Start()
		delivered := r.err == nil && len(r.got) == size
		_, err := os.Stat(offer)
		switch {
		case delivered && !errors.Is(err, unix.ENOENT):
			t.Errorf("it was delivered, and is there: %v", err)
		case !delivered && len(r.got) == size:
			t.Errorf("all bytes were read and then %v", r.err)
		case !delivered && err != nil && len(r.got) < size-(1<<20):
			t.Errorf("%d bytes were read and it is gone: %v", len(r.got), err)
		case err == nil:
			wantOffered(t, offer, uint64(round), size)
		}
	}
}

// TestPublishSurvivesAnUnmount checks that publications in host memory are preserved.
func TestPublishSurvivesAnUnmount(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	p := place{name: "host", dir: openDir(t, m.Path("host")), m: m}
	offer := p.publish(t, "t", 1, publishSize)
	pread(t, offer, []stretch{{0, publishSize - 1}})
	m.Remount()
	wantOffered(t, offer, 1, publishSize)
	m.Remount()
	wantGone(t, offer)
}
