package cli

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The limits on equal warnings and errors: beyond mostAlike in a window they are only
// counted, and the count is logged at its end. So untrusted clients cannot fill the log.
const (
	mostAlike   = 10
	alikeWindow = time.Minute
)

// limited is a zap core that suppresses repetitions.
type limited struct {
	zapcore.Core

	alike *alike
}

// limitLog limits how often a core writes the same warning.
func limitLog(c zapcore.Core) zapcore.Core {
	return &limited{c, &alike{core: c, kinds: map[kind]*repeats{}}}
}

// With implements zapcore.Core.
func (l *limited) With(fields []zap.Field) zapcore.Core {
	return &limited{l.Core.With(fields), l.alike}
}

// Check implements zapcore.Core.
func (l *limited) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level != zapcore.WarnLevel && e.Level != zapcore.ErrorLevel || l.alike.allow(kind{e.LoggerName, e.Message, e.Level}) {
		return l.Core.Check(e, to)
	}
	return to
}

// Sync implements zapcore.Core. It first writes the counts.
func (l *limited) Sync() error {
	l.alike.tellAll()
	return l.Core.Sync()
}

// kind identifies entries that count as equal: their fields may differ.
type kind struct {
	logger, message string
	level           zapcore.Level
}

// alike counts the entries of each kind in the current window.
//
// mu is a leaf in the lock order, except for the locks of the core.
type alike struct {
	core zapcore.Core

	mu sync.Mutex
	// +checklocks:mu
	kinds map[kind]*repeats
}

type repeats struct {
	written, left int
}

// allow counts an entry, and reports whether to write it. The window of a kind begins with
// its first entry.
func (a *alike) allow(k kind) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.kinds[k]
	if r == nil {
		r = &repeats{}
		a.kinds[k] = r
		time.AfterFunc(alikeWindow, func() { a.end(k) })
	}
	if r.written < mostAlike {
		r.written++
		return true
	}
	r.left++
	return false
}

func (a *alike) end(k kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tellLocked(k)
	delete(a.kinds, k)
}

// tellAll writes the counts before their windows end.
func (a *alike) tellAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.kinds {
		a.tellLocked(k)
	}
}

// tellLocked writes how many entries of a kind were suppressed.
//
// +checklocks:a.mu
func (a *alike) tellLocked(k kind) {
	r := a.kinds[k]
	if r.left == 0 {
		return
	}
	e := zapcore.Entry{Level: k.level, Time: time.Now(), LoggerName: k.logger, Message: k.message}
	// A failure to write the log cannot be reported anywhere else.
	_ = a.core.Write(e, []zap.Field{zap.String("repeated", fmt.Sprintf("%d more like this in the last minute", r.left))})
	r.left = 0
}
