package runner

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// longestLine bounds the size, in bytes, of an incomplete line that is kept.
const longestLine = 64 << 10

// lines writes whole lines of several ranks to one writer, each prefixed with its rank.
type lines struct {
	// +checklocks:mu
	out io.Writer
	mu  sync.Mutex
}

// stream is one output stream of a rank, or of an agent. It is written to by one goroutine.
type stream struct {
	to     *lines
	prefix string
	// log receives the unmodified output; nil means no log.
	log  io.Writer
	held []byte
	lost bool
}

// Write handles new output. It never fails: if the log can't be written, it reports the
// loss once and drops further output.
func (s *stream) Write(p []byte) (int, error) {
	if s.lost {
		return len(p), nil
	}
	var err error
	if s.log != nil {
		_, err = s.log.Write(p)
	}
	s.held = append(s.held, p...)
	s.whole()
	if err != nil {
		s.finish()
		s.lost = true
		s.to.write(s.prefix, fmt.Appendf(nil, "(what it wrote was lost: %v)", err))
	}
	return len(p), nil
}

// whole writes the complete lines, and keeps the rest.
func (s *stream) whole() {
	end := bytes.LastIndexByte(s.held, '\n')
	if end < 0 && len(s.held) >= longestLine {
		end = len(s.held) - 1
	}
	if end < 0 {
		return
	}
	s.to.write(s.prefix, s.held[:end+1])
	s.held = append(s.held[:0], s.held[end+1:]...)
}

// finish writes an incomplete last line.
func (s *stream) finish() {
	if len(s.held) > 0 {
		s.to.write(s.prefix, s.held)
		s.held = s.held[:0]
	}
}

// write writes lines, and terminates the last one.
func (l *lines) write(prefix string, text []byte) {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		b.WriteString(prefix)
		b.Write(line)
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		b.WriteByte('\n')
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.out.Write(b.Bytes()) // a closed output is no reason to fail
}

// prefixOf returns the prefix of a rank's lines, of the same width for all ranks of a job.
func prefixOf(rank, world int) string {
	width := len(fmt.Sprint(world - 1))
	return fmt.Sprintf("[%*d] ", width, rank)
}
