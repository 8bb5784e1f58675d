package badgerkv_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/conformance/kvtest"
)

func open(t *testing.T, dir string) *badgerkv.KV {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return kv
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		kv   func(*badgerkv.KV) metadata.KV
	}{
		{"Update", func(kv *badgerkv.KV) metadata.KV { return kv }},
		{"UpdateSoon", func(kv *badgerkv.KV) metadata.KV { return soon{kv} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			kvtest.RunSuite(t, kvtest.Suite{
				Open: func(t *testing.T) metadata.KV {
					t.Helper()
					return c.kv(open(t, t.TempDir()))
				},
				Persistent: func(t *testing.T) kvtest.Opener {
					t.Helper()
					dir := filepath.Join(t.TempDir(), "made", "by", "open")
					return func(t *testing.T) metadata.KV {
						t.Helper()
						return c.kv(open(t, dir))
					}
				},
			})
		})
	}
}

// soon is a store whose every change is written later.
type soon struct{ *badgerkv.KV }

func (s soon) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	return s.UpdateSoon(ctx, fn)
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	kv := open(t, dir)
	_, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
	if !errors.Is(err, badgerkv.ErrLocked) {
		t.Fatalf("second Open = %v, want ErrLocked", err)
	}
	var locked *badgerkv.LockedError
	if !errors.As(err, &locked) || locked.Dir != dir || locked.PID != os.Getpid() {
		t.Errorf("the error tells %+v, want this directory and process", locked)
	}
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("%q does not name the directory", err)
	}
	// The failed attempt must not have affected the one that succeeds.
	if err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
		return tx.Set([]byte("k"), []byte("v"))
	}); err != nil {
		t.Errorf("Update after a failed second Open: %v", err)
	}
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Errorf("Close after reopening: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: file}); err == nil {
		t.Error("a file opens as a directory")
	}
	if _, err := badgerkv.Open(t.Context(), badgerkv.Options{}); err == nil {
		t.Error("no directory opens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := badgerkv.Open(ctx, badgerkv.Options{Dir: t.TempDir()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open with an ended context = %v", err)
	}
}

// TestCommitAfterClose begins a transaction, closes the store, and commits the transaction:
// it must be refused before it stores to anything that Close has released.
func TestCommitAfterClose(t *testing.T) {
	kv := open(t, t.TempDir())
	begun, closed, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			close(begun)
			<-closed
			return tx.Set([]byte("k"), []byte("v"))
		})
	}()
	<-begun
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
	close(closed)
	if err := <-ended; !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("Update = %v, want ErrClosed", err)
	}
}
