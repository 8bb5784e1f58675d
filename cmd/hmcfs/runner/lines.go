package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// longestLine is how much of a line is kept until its end has come.
const longestLine = 64 << 10

// lines writes whole lines of several ranks to one writer, each with its rank
// before it.
type lines struct {
	// +checklocks:mu
	out io.Writer
	mu  sync.Mutex
}

// pass passes on what a rank writes, until nobody can write any more. It is
// kept in a log too, as it came, if that is not nil.
func (l *lines) pass(prefix string, from io.Reader, log io.Writer) error {
	var held []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := from.Read(chunk)
		if n > 0 && log != nil {
			if _, lerr := log.Write(chunk[:n]); lerr != nil {
				err = errors.Join(err, lerr)
			}
		}
		held = append(held, chunk[:n]...)
		held = l.whole(prefix, held)
		if err == nil {
			continue
		}
		if len(held) > 0 {
			l.write(prefix, held)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		l.write(prefix, fmt.Appendf(nil, "(what it wrote was lost: %v)", err))
		return err
	}
}

// whole writes the lines that have ended, and returns the rest.
func (l *lines) whole(prefix string, held []byte) []byte {
	end := bytes.LastIndexByte(held, '\n')
	if end < 0 && len(held) >= longestLine {
		end = len(held) - 1
	}
	if end < 0 {
		return held
	}
	l.write(prefix, held[:end+1])
	return append(held[:0], held[end+1:]...)
}

// write writes lines, and ends the last one.
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
	_, _ = l.out.Write(b.Bytes()) // whoever does not read it does not want it
}

// prefixOf is what stands before a rank's lines, of one width in a job.
func prefixOf(rank, world int) string {
	width := len(fmt.Sprint(world - 1))
	return fmt.Sprintf("[%*d] ", width, rank)
}
