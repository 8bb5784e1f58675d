package badgerkv

import (
	"fmt"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger passes Badger's messages to zap. Badger's info messages concern its internals, so
// they become debug messages. Messages of a disabled level are not formatted.
type logger struct {
	log *zap.Logger
	// names replaces the path that Badger uses by the directory's path.
	names  *strings.Replacer
	spares *spares
}

func (l logger) write(level zapcore.Level, format string, args []any) {
	if !l.log.Core().Enabled(level) {
		return
	}
	if entry := l.log.Check(level, "badger"); entry != nil {
		text := strings.TrimSpace(l.names.Replace(fmt.Sprintf(format, args...)))
		entry.Write(zap.String("message", text))
	}
}

func (l logger) Errorf(format string, args ...any) { l.write(zap.ErrorLevel, format, args) }

func (l logger) Warningf(format string, args ...any) { l.write(zap.WarnLevel, format, args) }

func (l logger) Infof(format string, args ...any) { l.write(zap.DebugLevel, format, args) }

// Debugf also delays a compaction, which calls it before it creates a table.
func (l logger) Debugf(format string, args ...any) {
	l.spares.awaitTable(format)
	l.write(zap.DebugLevel, format, args)
}
