package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// save sends all buffers of this host's ranks.
func (j *job) save(send func(head, p []byte) error) error {
	room := make([]byte, piece)
	for rank := j.first; rank < j.first+j.count; rank++ {
		for i := range j.plan.Buffers {
			at := j.spot(rank, &j.plan.Buffers[i])
			from := io.NewSectionReader(at.file, int64(at.off), int64(at.size))
			for left := at.size; left > 0; {
				p := room[:min(left, piece)]
				if _, err := io.ReadFull(from, p); err != nil {
					return fmt.Errorf("save %q of rank %d: %w", j.plan.Buffers[i].Name, rank, err)
				}
				if err := send(dataHead(rank, i), p); err != nil {
					return err
				}
				left -= uint64(len(p))
			}
		}
	}
	return nil
}

// saver writes the buffers of a host's ranks as DIR/rank_R/NAME.bin: those, in
// their order, and of each as many bytes as it has. It is used by one goroutine.
type saver struct {
	plan *Plan
	// asked says that the host was asked for them.
	asked atomic.Bool
	// moved says that some have come.
	moved atomic.Bool
	// rank and buffer are what comes next, at is how much of it has come.
	rank   int
	last   int
	buffer int
	at     uint64
	file   *os.File
	// failed is why nothing is written any more. Nothing of it is the host's
	// fault.
	failed error
}

// take takes bytes of a buffer. Its error is what no host says.
func (s *saver) take(p []byte) error {
	const head = 3
	if !s.asked.Load() || s.complete() || len(p) <= head || int(p[0]) != s.rank || int(binary.BigEndian.Uint16(p[1:])) != s.buffer {
		return fmt.Errorf("a buffer that was not requested: %w", ErrTalk)
	}
	s.moved.Store(true)
	p = p[head:]
	b := &s.plan.Buffers[s.buffer]
	if uint64(len(p)) > b.size()-s.at {
		return fmt.Errorf("more data of %q than its size: %w", b.Name, ErrTalk)
	}
	if s.failed == nil {
		s.failed = s.write(b, p)
	}
	if s.at += uint64(len(p)); s.at < b.size() {
		return nil
	}
	s.finish()
	s.at = 0
	if s.buffer++; s.buffer == len(s.plan.Buffers) {
		s.buffer = 0
		s.rank++
	}
	return nil
}

// complete says that all has come.
func (s *saver) complete() bool { return s.rank > s.last || len(s.plan.Buffers) == 0 }

// write writes the next bytes of a buffer.
func (s *saver) write(b *Buffer, p []byte) (err error) {
	if s.file == nil {
		if s.file, err = s.create(b); err != nil {
			return fmt.Errorf("save %q of rank %d: %w", b.Name, s.rank, err)
		}
	}
	_, err = s.file.Write(p)
	return err
}

// create makes the file of a buffer. No name of it comes from the host.
func (s *saver) create(b *Buffer) (*os.File, error) {
	in, err := os.OpenRoot(s.plan.Save)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	of := "rank_" + strconv.Itoa(s.rank)
	if err = in.MkdirAll(of, 0o777); err != nil {
		return nil, err
	}
	return create(in, filepath.Join(of, b.Name+".bin"), 0o666)
}

// finish closes the file that is being written.
func (s *saver) finish() {
	if s.file != nil {
		s.failed = errors.Join(s.failed, s.file.Close())
		s.file = nil
	}
}
