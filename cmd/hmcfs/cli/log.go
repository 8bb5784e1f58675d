package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxLog is how long a log may be when a daemon starts; a longer one is put
// aside as .1.
const maxLog = 16 << 20

// openLog opens a log for appending, for this user alone.
func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("log file: %w", err)
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
