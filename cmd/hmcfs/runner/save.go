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
	for rank := j.First; rank < j.First+j.Count; rank++ {
		for i := range j.plan.config.Buffers {
			at := j.spot(rank, &j.plan.config.Buffers[i])
			from := io.NewSectionReader(at.file, int64(at.off), int64(at.size))
			for left := at.size; left > 0; {
				p := room[:min(left, piece)]
				if _, err := io.ReadFull(from, p); err != nil {
					return fmt.Errorf("save %q of rank %d: %w", j.plan.config.Buffers[i].Name, rank, err)
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

// saver writes the buffers of a host's ranks to DIR/rank_R/NAME.bin. It accepts exactly
// these buffers, in order and with their sizes. It is used by one goroutine.
type saver struct {
	plan *Plan
	// asked reports that the buffers were requested.
	asked atomic.Bool
	// moved reports that bytes have arrived.
	moved atomic.Bool
	// rank and buffer are the next to arrive, at the number of bytes of it so far.
	rank   int
	last   int
	buffer int
	at     uint64
	file   *os.File
	// failed is the error after which nothing is written any more. The host is not at fault
	// for it.
	failed error
}

// take handles bytes of a buffer. An error means that the host violates the protocol.
func (s *saver) take(p []byte) error {
	const head = 3
	if !s.asked.Load() || s.complete() || len(p) <= head || int(p[0]) != s.rank || int(binary.BigEndian.Uint16(p[1:])) != s.buffer {
		return fmt.Errorf("a buffer that was not requested: %w", ErrProtocol)
	}
	s.moved.Store(true)
	p = p[head:]
	b := &s.plan.config.Buffers[s.buffer]
	if uint64(len(p)) > b.size()-s.at {
		return fmt.Errorf("more data of %q than its size: %w", b.Name, ErrProtocol)
	}
	if s.failed == nil {
		s.failed = s.write(b, p)
	}
	if s.at += uint64(len(p)); s.at < b.size() {
		return nil
	}
	s.finish()
	s.at = 0
	if s.buffer++; s.buffer == len(s.plan.config.Buffers) {
		s.buffer = 0
		s.rank++
	}
	return nil
}

// complete reports that everything has arrived.
func (s *saver) complete() bool { return s.rank > s.last || len(s.plan.config.Buffers) == 0 }

// write writes the next bytes of a buffer. No part of the file's name comes from the host.
func (s *saver) write(b *Buffer, p []byte) (err error) {
	if s.file == nil {
		name := filepath.Join("rank_"+strconv.Itoa(s.rank), b.Name+".bin")
		if s.file, err = create(s.plan.Save, name); err != nil {
			return fmt.Errorf("save %q of rank %d: %w", b.Name, s.rank, err)
		}
	}
	_, err = s.file.Write(p)
	return err
}

// finish closes the current file.
func (s *saver) finish() {
	if s.file != nil {
		s.failed = errors.Join(s.failed, s.file.Close())
		s.file = nil
	}
}
