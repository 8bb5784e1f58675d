package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// lineBuffer is the number of bytes up to which lines are collected before they are
	// written.
	lineBuffer = 32 << 10
	// linesType is the content type of lines.
	linesType = "application/x-ndjson"
	// writeLimit bounds the time to write the answer to a call.
	writeLimit = 30 * time.Second
)

// lines is an answer that is sent line by line. Only one goroutine may use it.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	text    bytes.Buffer
	coder   *json.Encoder
	// limit bounds how long a client may leave lines unread once its buffers are full; 0
	// means forever.
	limit time.Duration
	// sent is set once some lines have been written to the connection.
	sent bool
	// failed is the error after which nothing more is written.
	failed error
}

func newLines(w http.ResponseWriter) *lines {
	l := &lines{w: w, control: http.NewResponseController(w), limit: writeLimit}
	l.coder = json.NewEncoder(&l.text)
	l.coder.SetEscapeHTML(false)
	return l
}

// put adds a line, which is sent by flush, or earlier.
func (l *lines) put(line any) {
	if l.failed != nil {
		return
	}
	if l.failed = l.coder.Encode(line); l.failed == nil && l.text.Len() >= lineBuffer {
		l.write()
	}
}

// write writes the collected lines to the connection. What is written last is sent when the
// answer ends.
func (l *lines) write() {
	if l.failed != nil || l.text.Len() == 0 {
		return
	}
	l.w.Header()["Content-Type"] = []string{linesType}
	if l.limit > 0 {
		_ = l.control.SetWriteDeadline(time.Now().Add(l.limit)) // a connection of ours has deadlines
	}
	l.sent = true
	_, l.failed = l.text.WriteTo(l.w)
}

// flush sends all lines at once.
func (l *lines) flush() error {
	if l.write(); l.failed == nil {
		l.failed = l.control.Flush()
	}
	return l.failed
}

// lineOf returns the line of a key and its error.
func lineOf(n int, key string, err error) adminapi.Line {
	line := adminapi.Line{N: n, Key: key}
	if err != nil {
		line.Error, line.Code = err.Error(), hetero.StatusOf(err).Name
	}
	return line
}

// results sends results, or the error of the whole call.
func (l *lines) results(r hetero.Results, err error) error {
	if r == nil && err != nil {
		return err
	}
	for i, one := range r {
		line := lineOf(i, one.Key, one.Err)
		line.Skipped = one.Skipped
		l.put(line)
	}
	l.write()
	return nil
}

// batch sends the results of a background operation.
func (l *lines) batch(ctx context.Context, b *hetero.Batch, err error) error {
	if err != nil {
		return err
	}
	l.put(adminapi.Line{Begun: true})
	if l.flush() != nil {
		return nil
	}
	<-b.Done() // it also ends when the connection does
	r, err := b.Wait(ctx)
	return l.results(r, err)
}

// futures sends the results of futures as they complete: first those that are complete,
// then a line that the others are in progress. Closing left ends the wait; nil never does.
func (l *lines) futures(futures []*hetero.Future, err error, left <-chan struct{}) error {
	if futures == nil && err != nil {
		return err
	}
	e := newEndings()
	for i, f := range futures {
		f.Then(func() { e.add(lineOf(i, f.Key(), f.Err())) })
	}
	todo := len(futures) - l.putAll(e.take())
	begun := lineOf(0, "", err)
	begun.Begun = true
	l.put(begun)
	for l.flush() == nil && todo > 0 {
		select {
		case <-e.came:
			todo -= l.putAll(e.take())
		case <-left:
			return nil
		}
	}
	return nil
}

func (l *lines) putAll(all []adminapi.Line) int {
	for _, line := range all {
		l.put(line)
	}
	return len(all)
}

// endings holds lines of keys that are not sent yet. Any goroutine may add to it.
type endings struct {
	// came has a buffer of one: it signals that there are lines to send.
	came chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	lines []adminapi.Line
}

func newEndings() *endings { return &endings{came: make(chan struct{}, 1)} }

func (e *endings) add(line adminapi.Line) {
	e.mu.Lock()
	e.lines = append(e.lines, line)
	e.mu.Unlock()
	select {
	case e.came <- struct{}{}:
	default:
	}
}

// write sends lines in the background until end is called, which may be called more than
// once. If the client does not read, the end of the connection ends the call.
func (e *endings) write(out *lines) (end func()) {
	over, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for {
			select {
			case <-e.came:
				out.putAll(e.take())
				_ = out.flush() // out records the error
			case <-over:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-written
	})
}

func (e *endings) take() []adminapi.Line {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.lines
	e.lines = nil
	return lines
}
