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

// maxLog bounds the length of a log, in bytes; a longer one is renamed to .1, when a daemon
// starts and while it runs.
const maxLog = 16 << 20

// rotatingLog is a log that is rotated when it exceeds a limit. Standard streams that are
// redirected to it follow it, so that messages of the runtime at a crash are in the current
// file.
type rotatingLog struct {
	path  string
	limit int64

	mu sync.Mutex
	// +checklocks:mu
	file *os.File
	// size is the size of the file when it was opened, plus the bytes written since.
	// +checklocks:mu
	size int64
}

// rotateLog returns a log that rotates an open file, which it closes at a rotation.
// Anything but a regular file is never rotated.
func rotateLog(f *os.File, limit int64) *rotatingLog {
	r := &rotatingLog{path: f.Name(), file: f, limit: limit}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		r.size = st.Size()
	} else {
		r.limit = math.MaxInt64
	}
	return r
}

// Write writes one message. If the log cannot be rotated it continues to grow, and the next
// attempt follows after as many bytes again.
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

func (r *rotatingLog) next() (*os.File, error) {
	if err := putAside(r.path); err != nil {
		return nil, err
	}
	return openLog(r.path)
}

// followLocked switches to another file, with the standard streams that were redirected to
// the previous one.
//
// +checklocks:r.mu
func (r *rotatingLog) followLocked(next *os.File) {
	was, err := r.file.Stat()
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		st, serr := stream.Stat()
		if err == nil && serr == nil && os.SameFile(was, st) {
			// If this fails the stream still writes to the file that is now .1.
			_ = unix.Dup3(int(next.Fd()), int(stream.Fd()), 0)
		}
	}
	_ = r.file.Close() // everything is written
	r.file = next
}

// Close closes the log.
func (r *rotatingLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}

// putAside renames a log to .1, replacing the previous one.
func putAside(path string) error {
	if err := os.Rename(path, path+".1"); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	return nil
}

// openLog opens a log for appending, accessible only to this user.
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

// newLogger returns a logger that writes JSON lines for programs, or plain lines for a
// user.
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
