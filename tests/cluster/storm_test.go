package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

const (
	writersEach = 4
	// steps is the number of files that are written between two disturbances.
	steps = 40
)

// TestStorm lets four writers on each of three nodes write files on all of them, and copy and
// remove them, while nodes are killed and cut off: afterwards, every confirmed file exists,
// complete, as seen from every node, and no unconfirmed file has a wrong byte.
func TestStorm(t *testing.T) {
	w, nodes := newNodes(t, worldOptions{etcd: plainEtcd(), devices: []string{"host,size=1GiB", "sim:0,size=64MiB"}})
	s := &storm{t: t, nodes: nodes, over: make(chan struct{}), random: rand.New(rand.NewPCG(1, uint64(os.Getpid())))} //nolint:gosec // it is a test
	var running sync.WaitGroup
	for i, n := range nodes {
		for k := range writersEach {
			wr := &writer{s: s, n: n, name: fmt.Sprintf("%s%d", n.name, k), random: rand.New(rand.NewPCG(uint64(i), uint64(k)))} //nolint:gosec // it is a test
			s.writers = append(s.writers, wr)
			running.Go(wr.run)
		}
	}
	for i := range kit.Rounds(3, 3, 36) {
		s.progress(steps)
		s.disturb(i)
	}
	s.progress(steps)
	close(s.over)
	must(t, soon(t, "the writers' end", func() error { running.Wait(); return nil }))
	w.meet()
	s.verify()
}

// storm is shared by the writers.
type storm struct {
	t       *testing.T
	nodes   []*node
	writers []*writer
	random  *rand.Rand
	over    chan struct{}
	// written and failed count files.
	written, failed, copied, removed atomic.Int64
}

// progress waits until some more files were written.
func (s *storm) progress(n int64) {
	s.t.Helper()
	want := s.written.Load() + n
	kit.Eventually(s.t, patience, func() error {
		if got := s.written.Load(); got < want {
			return fmt.Errorf("%d files written, %d failed; want %d", got, s.failed.Load(), want)
		}
		return nil
	})
}

// disturb causes one fault, lets it last for a while, and reverts it.
func (s *storm) disturb(round int) {
	s.t.Helper()
	ctx := s.t.Context()
	i := s.random.IntN(len(s.nodes))
	n, other := s.nodes[i], s.nodes[(i+1)%len(s.nodes)]
	switch round % 3 {
	case 0:
		s.t.Logf("kill %s", n.name)
		n.Kill()
		s.suffers()
		n.restart()
	case 1:
		s.t.Logf("pull %s", n.name)
		must(s.t, n.space.Pull(ctx))
		s.suffers()
		must(s.t, n.space.Plug(ctx))
	case 2:
		s.t.Logf("cut %s from %s", n.name, other.name)
		must(s.t, n.space.Cut(ctx, other.space))
		s.suffers()
		must(s.t, n.space.Mend(ctx, other.space))
	}
}

// suffers waits until some writers have failed because of it, and some have continued.
func (s *storm) suffers() {
	s.t.Helper()
	failed := s.failed.Load()
	kit.Eventually(s.t, patience, func() error {
		if s.failed.Load() == failed {
			return errors.New("nobody has noticed")
		}
		return nil
	})
	s.progress(writersEach)
}

// verify compares everything with what was confirmed.
func (s *storm) verify() {
	s.t.Helper()
	s.t.Logf("%d files written, %d copied, %d removed, %d failures", s.written.Load(), s.copied.Load(), s.removed.Load(), s.failed.Load())
	kept := 0
	for _, wr := range s.writers {
		for _, f := range wr.files {
			if !f.confirmed {
				s.unconfirmed(f)
				continue
			}
			kept++
			for _, n := range s.nodes {
				if err := check(f.by(n), f.seed, f.size); err != nil {
					s.t.Errorf("confirmed to %s, read by %s: %v", wr.name, n.name, err)
				}
			}
		}
	}
	s.t.Logf("%d files have survived and are right", kept)
}

// unconfirmed checks a file whose state the writer does not know: either it does not exist, or
// its first bytes are right.
func (s *storm) unconfirmed(f *file) {
	s.t.Helper()
	if n, err := prefix(f.by(f.on), f.seed); err != nil && !errors.Is(err, os.ErrNotExist) || n > f.size {
		s.t.Errorf("not confirmed: %d of %d bytes, %v", n, f.size, err)
	}
}

// file is a file whose writing was started.
type file struct {
	on        *node
	name      string
	seed      uint64
	size      int
	confirmed bool
}

// by returns the file's path through a node.
func (f *file) by(n *node) string {
	if n == f.on {
		return n.Path("host", f.name)
	}
	return n.at(f.on.name, "host", f.name)
}

// writer writes files through one node.
type writer struct {
	s      *storm
	n      *node
	name   string
	random *rand.Rand
	files  []*file
	count  int
}

// maxFiles limits the number of files that a writer leaves.
const maxFiles = 24

func (wr *writer) run() {
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-wr.s.over:
			return
		case <-pause.C:
		}
		if err := wr.step(); err != nil {
			wr.s.failed.Add(1)
		}
	}
}

// step writes a file, or copies one, and removes the oldest if there are many.
func (wr *writer) step() error {
	if len(wr.files) >= maxFiles {
		return wr.remove()
	}
	wr.count++
	f := &file{
		on: wr.s.nodes[wr.random.IntN(len(wr.s.nodes))], name: fmt.Sprintf("%s-%d", wr.name, wr.count),
		seed: wr.random.Uint64(), size: wr.random.IntN(3*mib) + 1,
	}
	from := wr.source()
	if from != nil {
		f.seed, f.size = from.seed, from.size
	}
	wr.files = append(wr.files, f)
	err := wr.create(f, from)
	if err == nil {
		f.confirmed = true
		wr.s.written.Add(1)
		if from != nil {
			wr.s.copied.Add(1)
		}
	}
	return err
}

// source returns a file to be copied, every third time.
func (wr *writer) source() *file {
	if wr.count%3 != 0 || len(wr.files) == 0 {
		return nil
	}
	if f := wr.files[wr.random.IntN(len(wr.files))]; f.confirmed {
		return f
	}
	return nil
}

// create creates a file as careful programs do: it gets its name when it is complete.
func (wr *writer) create(f, from *file) error {
	path := f.by(wr.n)
	out, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if from != nil {
		err = copyFile(out, from.by(wr.n), from.size)
	} else {
		_, err = out.Write(kit.Bytes(f.seed, 0, f.size))
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// copyFile repeats copy_file_range, as cp does.
func copyFile(to *os.File, from string, size int) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // the file was only read
	for done := 0; done < size; {
		n, err := unix.CopyFileRange(int(in.Fd()), nil, int(to.Fd()), nil, size-done, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%s ends after %d of %d bytes", filepath.Base(from), done, size)
		}
		done += n
	}
	return nil
}

// remove removes the oldest file. If that fails it is unknown whether the file still exists;
// the removal must not affect any other file. It is retried after all others, so that an
// unreachable node does not block the writer.
func (wr *writer) remove() error {
	f := wr.files[0]
	err := os.Remove(f.by(wr.n))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.confirmed = false // it may have been removed nevertheless
		wr.files = append(wr.files[1:], f)
		return err
	}
	wr.files = wr.files[1:]
	wr.s.removed.Add(1)
	return nil
}
