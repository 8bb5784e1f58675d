package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/lab"
)

const (
	// slots is the number of files of a shelf, and blocks the number of blocks of a file
	// that is written in place.
	slots     = 6
	blocks    = 8
	blockSize = 8192
)

// shelf holds the files that one worker changes, through one node. No other worker changes
// them.
type shelf struct {
	r     *run
	n     *lab.Node
	slots []*slot
}

// slot is one file name. The file is either replaced as a whole or written in blocks.
type slot struct {
	on   *lab.Node
	name string
	// whole holds the versions that a file that is replaced may have; parts holds those of
	// each block of a file that is written in place.
	whole judge.Versions
	parts []judge.Versions
	// past describes the last changes, for the report of a violation.
	past []string
}

// remembered bounds the number of past changes reported for a wrong file.
const remembered = 12

// note adds a change to past.
func (o *slot) note(r *run, began time.Duration, what string, err error) {
	o.past = append(o.past, fmt.Sprintf("%8.3f–%8.3f s  %s: %v", began.Seconds(), r.now().Seconds(), what, err))
	o.past = o.past[max(0, len(o.past)-remembered):]
}

func newShelf(r *run, n *lab.Node) *shelf {
	s := &shelf{r: r, n: n}
	for i := range slots {
		one := &slot{on: r.lab.Nodes[i%len(r.lab.Nodes)], name: fmt.Sprintf("file-%s-%d", n.Name, i), whole: judge.Versions{Absent: true}}
		if i >= slots/2 {
			one.parts = make([]judge.Versions, blocks)
		}
		s.slots = append(s.slots, one)
	}
	return s
}

// path returns the path of the file as seen by a node.
func (o *slot) path(by *lab.Node) string { return by.At(o.on, "host", o.name) }

// fileSize returns the size, in bytes, of a version.
func fileSize(seed uint64) int { return 1000 + int(seed*7919%300_000) }

// step performs a random operation on a random file.
func (s *shelf) step(w *hand) {
	o := s.slots[w.random.IntN(slots)]
	path := o.path(s.n)
	if o.parts != nil {
		s.stepInPlace(w, o, path)
		return
	}
	switch w.random.IntN(8) {
	case 0, 1, 2:
		s.replace(o, path)
	case 3, 4:
		s.read(o, path)
	case 5:
		s.remove(o, path)
	default:
		s.copyOut(o, path)
	}
}

// replace writes a new file and renames it over the slot's name.
func (s *shelf) replace(o *slot, path string) {
	seed := uint64(s.r.number())
	next := fmt.Sprintf("%s.%d", path, seed)
	renamed, began := false, s.r.now()
	var err error
	defer func() { o.note(s.r, began, fmt.Sprintf("replaced by %d, rename called: %t", seed, renamed), err) }()
	if !s.r.within("replace", path, func() error {
		if err = os.WriteFile(next, kit.Bytes(seed, 0, fileSize(seed)), 0o644); err != nil {
			_ = os.Remove(next) // the file or its node may be absent
			return err
		}
		renamed = true
		err = os.Rename(next, path)
		return err
	}) || renamed && err != nil {
		o.whole.Try(seed)
		return
	}
	if err == nil {
		o.whole.Set(seed)
	}
}

// read checks that the file has one of its possible versions.
func (s *shelf) read(o *slot, path string) {
	var content []byte
	var err error
	if !s.r.within("read", path, func() error { content, err = os.ReadFile(path); return err }) {
		return
	}
	s.r.violate(o.judge(path, content, err)...)
}

// judge checks the result of reading the file.
func (o *slot) judge(path string, content []byte, err error) []judge.Violation {
	switch {
	case errors.Is(err, os.ErrNotExist) && !o.whole.Absent && isThere(filepath.Dir(path)):
		if _, again := os.Lstat(path); errors.Is(again, os.ErrNotExist) {
			_, own := os.Lstat(o.path(o.on))
			return []judge.Violation{{Property: "lost file", Text: fmt.Sprintf("%s, of one of the versions %v, is not there; on its own node: %v\n  %s",
				path, o.whole.Seeds, own, strings.Join(o.past, "\n  "))}}
		}
		return nil
	case err != nil:
		return nil // a failed read is permitted
	default:
		return o.whole.Content(path, content, fileSize)
	}
}

func isThere(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}

// remove unlinks the file. It does not use os.Remove, which calls rmdir after an error of
// unlink and returns the error of that: an unlink that failed but took effect would be
// reported as a missing file.
func (s *shelf) remove(o *slot, path string) {
	began := s.r.now()
	var err error
	defer func() { o.note(s.r, began, "removed", err) }()
	if !s.r.within("unlink", path, func() error { err = unix.Unlink(path); return ignoreAbsent(err) }) || err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			o.whole.TryRemove()
		}
		return
	}
	o.whole.Remove()
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// copyOut copies the file to a device of the worker's node, as cp does, and checks the
// copy.
func (s *shelf) copyOut(o *slot, path string) {
	to := s.n.Path("sim0", o.name+".copy")
	deaths := s.n.Deaths()
	var content []byte
	var err error
	if !s.r.within("copy between nodes", path, func() error {
		if err = copyFile(to, path); err == nil {
			content, err = os.ReadFile(to)
		}
		return err
	}) {
		return
	}
	if err == nil && deaths == s.n.Deaths() {
		s.r.violate(o.whole.Content("a copy of "+path, content, fileSize)...)
	}
}

// copyFile copies a file with copy_file_range. It returns an error if the copy is shorter
// than the file.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	for done := int64(0); done < info.Size() && err == nil; {
		var n int
		n, err = unix.CopyFileRange(int(in.Fd()), nil, int(out.Fd()), nil, int(info.Size()-done), 0)
		if n == 0 && err == nil {
			err = fmt.Errorf("%s ends after %d of %d bytes", from, done, info.Size())
		}
		done += int64(n)
	}
	return errors.Join(err, out.Close())
}

// stepInPlace writes or reads one block of a file.
func (s *shelf) stepInPlace(w *hand, o *slot, path string) {
	i := w.random.IntN(blocks)
	v, off := &o.parts[i], int64(i)*blockSize
	if len(v.Seeds) == 0 || w.random.IntN(2) == 0 {
		seed := uint64(s.r.number())
		var err error
		if !s.r.within("write in place", path, func() error { err = writeAt(path, kit.Bytes(seed, off, blockSize), off); return err }) || err != nil {
			v.Try(seed)
			return
		}
		v.Set(seed)
		return
	}
	content := make([]byte, blockSize)
	var err error
	if !s.r.within("read in place", path, func() error { err = readAt(path, content, off); return err }) || err != nil {
		return
	}
	s.r.violate(v.Mixed(path, off, content)...)
}

func writeAt(path string, p []byte, off int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(p, off)
	return errors.Join(err, f.Close())
}

func readAt(path string, p []byte, off int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = f.ReadAt(p, off)
	return err
}

// judgeFiles checks all files on all nodes after all faults have ended.
func (r *run) judgeFiles() {
	for _, s := range r.shelves {
		for _, o := range s.slots {
			for _, n := range r.lab.Nodes {
				o.judgeAtEnd(r, o.path(n))
			}
		}
	}
}

func (o *slot) judgeAtEnd(r *run, path string) {
	if o.parts == nil {
		content, err := os.ReadFile(path)
		if err != nil && (!o.whole.Absent || !errors.Is(err, os.ErrNotExist)) {
			r.violate(judge.Violation{Property: "lost file", Text: fmt.Sprintf("%s, of one of the versions %v, at the end: %v\n  %s",
				path, o.whole.Seeds, err, strings.Join(o.past, "\n  "))})
			return
		}
		if err == nil {
			r.violate(o.whole.Content(path, content, fileSize)...)
		}
		return
	}
	for i := range o.parts {
		v := &o.parts[i]
		if !v.Known() {
			continue // no write of it was acknowledged
		}
		content, off := make([]byte, blockSize), int64(i)*blockSize
		if err := readAt(path, content, off); err != nil {
			r.violate(judge.Violation{Property: "lost file", Text: fmt.Sprintf("block %d of %s at the end: %v", i, path, err)})
			continue
		}
		r.violate(v.Mixed(path, off, content)...)
	}
}
