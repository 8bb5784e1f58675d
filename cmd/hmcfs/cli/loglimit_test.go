package cli

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// sharedBuffer is a buffer that is written to while others read it.
type sharedBuffer struct {
	mu sync.Mutex
	// +checklocks:mu
	text bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestLogLimit repeats warnings, as a port scan would cause: the log contains their number,
// and other messages are not lost among them.
func TestLogLimit(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		var out sharedBuffer
		log := newLogger(&out, "info", false).Named("comm")
		for i := range 22_000 {
			log.Warn("peer turned away", zap.Int("from", i))
			if i%1000 == 0 {
				log.Info("peer connected", zap.Int("rank", i))
			}
		}
		log.Error("something else")
		log.With(zap.Bool("child", true)).Warn("peer turned away")
		lines := func(text string) int { return strings.Count(out.String(), text) }
		if got := lines("peer turned away"); got != mostAlike {
			t.Errorf("%d lines of 22001 that are alike", got)
		}
		if lines("peer connected") != 22 || lines("something else") != 1 {
			t.Errorf("other lines are missing: %s", out.String())
		}
		<-time.After(alikeWindow)
		synctest.Wait()
		if want := fmt.Sprintf("%d more like this in the last minute", 22_001-mostAlike); lines(want) != 1 {
			t.Errorf("nothing says %q: %s", want, out.String())
		}
		log.Warn("peer turned away")
		if got := lines("peer turned away"); got != mostAlike+2 {
			t.Errorf("%d lines in the next minute", got)
		}
		for range 100 {
			log.Warn("peer turned away")
		}
		if err := log.Sync(); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("\"%d more like this", 101-mostAlike); lines(want) != 1 {
			t.Errorf("at the end nothing says %q", want)
		}
		<-time.After(2 * alikeWindow)
	})
}
