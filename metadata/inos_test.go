package metadata

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// slowKV holds back reservations of inode numbers: each sends to asks, and receives from answers why it fails; nil
// lets it commit.
type slowKV struct {
	mapKV
	slow    bool
	asks    chan struct{}
	answers chan error
	stored  atomic.Uint64 // the limit that is in the store
	closed  atomic.Bool
}

func (kv *slowKV) Update(ctx context.Context, fn func(KVTxn) error) error {
	limit := uint64(0)
	err := kv.mapKV.Update(ctx, func(t KVTxn) error {
		err := fn(t)
		data, missing := t.Get([]byte{kindAlloc})
		if err == nil && missing == nil {
			limit, err = decodeNumber("inode counter", data)
		}
		if kv.slow && err == nil {
			kv.asks <- struct{}{}
			err = <-kv.answers
		}
		if kv.closed.Load() {
			err = errors.Join(err, ErrClosed)
		}
		return err
	})
	if err == nil {
		kv.stored.Store(limit)
	}
	return err
}

func (kv *slowKV) Close() error {
	kv.closed.Store(true)
	return nil
}

// TestInosAhead reserves the next batch while the present one is used: no call waits as long as it has numbers, and
// none gets one before its reservation is stored.
func TestInosAhead(t *testing.T) {
	kit.Check(t)
	kv := &slowKV{mapKV: mapKV{data: map[string]string{}}, asks: make(chan struct{}), answers: make(chan error)}
	s, err := Open(t.Context(), kv, Options{})
	if err != nil {
		t.Fatal(err)
	}
	last := s.NextIno() - 1
	takes := func(n int) {
		t.Helper()
		inos, err := s.NewInos(t.Context(), n)
		if err != nil {
			t.Error(err)
		}
		for _, ino := range inos {
			if ino <= last || uint64(ino) >= kv.stored.Load() {
				t.Errorf("inode %d follows %d, and those up to %d are reserved", ino, last, kv.stored.Load())
			}
			last = ino
		}
	}
	takes(1)
	kv.slow = true
	takes(inoBatch - 1)
	<-kv.asks
	done := make(chan struct{})
	go func() {
		defer close(done)
		takes(10) // which has to wait now, also for the second attempt, as the first one fails
	}()
	kv.answers <- errors.New("not now")
	<-kv.asks
	kv.answers <- nil
	<-done
	takes(inoBatch - 10)
	<-kv.asks
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	kv.answers <- nil
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if kv.stored.Load() != uint64(last)+1+inoBatch {
		t.Errorf("numbers up to %d are reserved after %d", kv.stored.Load(), last)
	}
}
