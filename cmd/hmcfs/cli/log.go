package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// maxLog bounds the length of a log, in bytes; a longer one is put aside as .1,
// when a daemon starts and while it runs.
const maxLog = 16 << 20

// rotatingLog is a log that is put aside when it is longer than a limit. Standard
// streams that lead to it follow it, so that what the runtime says at a crash is in
// the present one.
type rotatingLog struct {
	path  string
	limit int64

	mu sync.Mutex
	// +checklocks:mu
	file *os.File
	// size counts the file's bytes when it was opened, and those written since.
	// +checklocks:mu
	size int64
}

// rotateLog rotates an open log, which it closes when another one takes its place.
// What is no regular file is only written to.
func rotateLog(f *os.File, limit int64) *rotatingLog {
	r := &rotatingLog{path: f.Name(), file: f, limit: limit}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		r.size = st.Size()
	} else {
		r.limit = math.MaxInt64
	}
	return r
}

// Write writes one message. Where the log can't be put aside it grows on, and the
// next try is after as much again.
func (r *rotatingLog) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > 0 && r.size+int64(len(p)) > r.limit {
		r.size = 0
		if next, err := r.next(); err == nil {
			r.followLocked(next)
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	return n, err
}

// next puts the log aside and opens a new one.
func (r *rotatingLog) next() (*os.File, error) {
	if err := putAside(r.path); err != nil {
		return nil, err
	}
	return openLog(r.path)
}

// followLocked goes on in another file, and so do the standard streams that led to
// the one before.
//
// +checklocks:r.mu
func (r *rotatingLog) followLocked(next *os.File) {
	was, err := r.file.Stat()
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		st, serr := stream.Stat()
		if err == nil && serr == nil && os.SameFile(was, st) {
			// Where it fails the stream goes on to what is .1 now.
			_ = unix.Dup3(int(next.Fd()), int(stream.Fd()), 0)
		}
	}
	_ = r.file.Close() // all of it is written
	r.file = next
}

// Close closes the log.
func (r *rotatingLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}

// putAside renames a log to .1, in place of the one before.
func putAside(path string) error {
	if err := os.Rename(path, path+".1"); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	return nil
}

// openLog opens a log for appending, for this user alone.
func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Size() > maxLog {
		if err := putAside(path); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return f, nil
}

// newLogger writes lines of JSON for machines, or plain ones for a person who
// looks on.
func newLogger(w io.Writer, level string, forPerson bool) *zap.Logger {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil {
		lvl = zapcore.InfoLevel
	}
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.ISO8601TimeEncoder
	enc := zapcore.NewJSONEncoder(c)
	if forPerson {
		enc = zapcore.NewConsoleEncoder(c)
	}
	return zap.New(limitLog(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), lvl)))
}
