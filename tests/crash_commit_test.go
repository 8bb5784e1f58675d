package tests

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// commitRounds bounds the number of attempts to kill the daemon in the middle of a file.
const commitRounds = 12

// TestKillWhileCommitting kills the daemon while the results of a collective are copied over
// files of host/: after the next mount each file has its previous bytes or the result, and the
// file that was being overwritten has the result.
func TestKillWhileCommitting(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fuse")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=512MiB", "sim:0,size=64MiB"}})
	for _, verb := range []string{"allreduce", "reduce-scatter"} {
		t.Run(verb, func(t *testing.T) {
			for round := range commitRounds {
				c := newCommitting(t, m, verb, uint64(round))
				middle := c.kill(t)
				m.Start()
				c.check(t)
				checkFsck(t, m, nil)
				if t.Failed() || middle {
					return
				}
			}
			t.Log("the daemon was never killed in the middle of a file")
		})
	}
}

// committing is a collective on files of host/.
type committing struct {
	m     *mnt.M
	verb  string
	paths []string
	// before and after are the contents of the files.
	before, after [][]byte
	// begun is the index of the file that was being overwritten when the daemon died.
	begun int
}

func newCommitting(t *testing.T, m *mnt.M, verb string, seed uint64) *committing {
	t.Helper()
	const size, ranks = 48 << 20, 2
	c := &committing{m: m, verb: verb, begun: -1}
	sum := make([]byte, size)
	for rank := range ranks {
		p := kit.Bytes(2*seed+uint64(rank), 0, size)
		for at := 0; at < size; at += 4 {
			old := binary.LittleEndian.Uint32(sum[at:])
			// Odd, so that a sum never equals one of its terms.
			p[at] |= 1
			binary.LittleEndian.PutUint32(sum[at:], old+binary.LittleEndian.Uint32(p[at:]))
		}
		c.before = append(c.before, p)
		c.paths = append(c.paths, m.Path("host", fmt.Sprint("r", rank)))
		must(t, os.WriteFile(c.paths[rank], p, 0o644))
	}
	for rank := range ranks {
		result := sum
		if verb == "reduce-scatter" {
			result = sum[rank*size/ranks : (rank+1)*size/ranks]
		}
		c.after = append(c.after, result)
	}
	return c
}

// kill starts the collective, kills the daemon when a file starts to change, and reports
// whether it was in the middle of it.
func (c *committing) kill(t *testing.T) (middle bool) {
	t.Helper()
	var files []*os.File
	for _, path := range c.paths {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		files = append(files, f)
	}
	over := make(chan error, 1)
	go func() {
		_, err := c.m.Run(append([]string{c.verb, "--dtype", "int32"}, c.paths...)...)
		over <- err
	}()
	begin := make([]byte, 4)
	ended := false
	for c.begun < 0 && !ended {
		for i, f := range files {
			_, err := unix.Pread(int(f.Fd()), begin, 0)
			must(t, err)
			if !bytes.Equal(begin, c.before[i][:4]) {
				c.begun = i
				break
			}
		}
		select {
		case err := <-over:
			must(t, err)
			ended = true
		default:
		}
	}
	c.m.Kill()
	if !ended {
		if err := <-over; err == nil {
			t.Log("the collective has ended just before")
		}
	}
	if c.begun >= 0 {
		// With passthrough the kernel reads the memory of host/ directly.
		end := make([]byte, 4)
		at := len(c.after[c.begun]) - 4
		n, err := unix.Pread(int(files[c.begun].Fd()), end, int64(at))
		middle = err == nil && n == 4 && bytes.Equal(end, c.before[c.begun][at:at+4])
	}
	for _, f := range files {
		_ = f.Close() // the daemon is dead
	}
	return middle
}

// check compares the files with their expected contents.
func (c *committing) check(t *testing.T) {
	t.Helper()
	for i, path := range c.paths {
		got, err := os.ReadFile(path)
		must(t, err)
		switch {
		case bytes.Equal(got, c.after[i]):
		case bytes.Equal(got, c.before[i]) && i != c.begun:
		default:
			t.Errorf("%s of rank %d: %d bytes, %d of the result and %d of before; the daemon was killed in rank %d",
				c.verb, i, len(got), kit.FirstDiff(got, c.after[i]), kit.FirstDiff(got, c.before[i]), c.begun)
		}
	}
}
