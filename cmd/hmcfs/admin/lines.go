package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
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

// lines sends values as lines of JSON. Only one goroutine may use it.
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

// line adds the line of a key, or that of a call that continues.
func (l *lines) line(one adminapi.Line) error {
	l.put(one)
	return l.failed
}

// plain is line for the key with an index that was a success.
func (l *lines) plain(n int, key string) error { return l.line(adminapi.Line{N: n, Key: key}) }

// end writes the rest, which the server sends when the answer ends.
func (l *lines) end() { l.write() }
