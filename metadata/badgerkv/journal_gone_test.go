package badgerkv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestJournalGone removes and replaces the file of the journal while the store is open: the changes after that survive a kill,
// and the log names the file.
func TestJournalGone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string) error
		// stays is set if the journal can't be made anew.
		stays bool
	}{
		"removed": {os.Remove, false},
		"replaced": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o600))
		}, false},
		"renamed":                 {func(path string) error { return os.Rename(path, path+".old") }, false},
		"replaced by a folder":    {func(path string) error { return errors.Join(os.Remove(path), os.MkdirAll(path+"/full", 0o700)) }, true},
		"removed with its folder": {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, true},
		"removed, and comes back": {func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Rename(path+".old", path))
		}, false},
		"a link that leads nowhere": {func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) }, false},
	} {
		t.Run(name, func(t *testing.T) { newGone(t).check(c.spoil, c.stays, strings.HasSuffix(name, "comes back")) })
	}
}

// gone is a store whose journal is removed while it is open.
type gone struct {
	t                     *testing.T
	dir, runtime, journal string
	log                   *zap.Logger
	logs                  *observer.ObservedLogs
	kv                    *badgerkv.KV
}

func newGone(t *testing.T) *gone {
	t.Helper()
	g := &gone{t: t, dir: filepath.Join(t.TempDir(), "kv"), runtime: filepath.Join(t.TempDir(), "run")}
	g.do(os.Mkdir(g.runtime, 0o700))
	g.journal = filepath.Join(g.runtime, "journal")
	core, logs := observer.New(zap.WarnLevel)
	g.log, g.logs = zap.New(core), logs
	g.kv = g.open(g.dir, g.journal)
	g.kv.FlushAfter(time.Hour, time.Hour)
	return g
}

func (g *gone) do(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *gone) open(dir, journal string) *badgerkv.KV {
	g.t.Helper()
	f, err := os.OpenFile(journal, os.O_RDWR|os.O_CREATE, 0o600)
	g.do(err)
	defer f.Close() //nolint:errcheck // it is mapped
	kv, err := badgerkv.Open(g.t.Context(), badgerkv.Options{Dir: dir, Journal: f, Logger: g.log})
	g.do(err)
	return kv
}

func (g *gone) set(keys ...string) {
	g.t.Helper()
	for _, key := range keys {
		g.do(g.kv.Update(g.t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte(key)) }))
	}
}

// next opens the store that follows after a kill at this moment.
func (g *gone) next() *badgerkv.KV {
	g.t.Helper()
	at := filepath.Join(g.t.TempDir(), "kv")
	g.do(os.CopyFS(at, os.DirFS(g.dir)))
	if data, err := os.ReadFile(g.journal); err == nil {
		g.do(os.WriteFile(at+".journal", data, 0o600))
	}
	return g.open(at, at+".journal")
}

// follows compares the keys of the next store.
func (g *gone) follows(want string) {
	g.t.Helper()
	next := g.next()
	if got := keysOf(g.t, next); got != want {
		g.t.Errorf("the next store has %s, want %s", got, want)
	}
	g.do(next.Close())
}

func (g *gone) check(spoil func(string) error, stays, silent bool) {
	g.t.Helper()
	g.set("a", "b")
	g.do(errors.Join(g.kv.Flush(), spoil(g.journal)))
	g.set("c")
	g.follows("[a b c]")
	g.set("d", "e")
	g.follows("[a b c d e]")
	g.do(g.kv.Flush())
	g.set("f")
	g.follows("[a b c d e f]")
	said := g.logs.FilterField(zap.String("file", g.journal)).All()
	if silent != (len(said) == 0) || len(said) > 1 {
		g.t.Errorf("logged: %v", g.logs.All())
	}
	if stays {
		g.comesBack()
	}
	g.do(g.kv.Close())
}

// comesBack makes room for the journal: after a while changes do not wait for Badger any more.
func (g *gone) comesBack() {
	g.t.Helper()
	g.do(errors.Join(os.RemoveAll(g.journal), os.MkdirAll(g.runtime, 0o700), g.kv.Flush()))
	kit.Eventually(g.t, time.Minute, func() error {
		g.set("g", "h")
		if !g.kv.Waits() {
			return errors.New("a change still waits for Badger")
		}
		return nil
	})
	g.follows("[a b c d e f g h]")
}
