package objects_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestTurns has many take turns of some files: nobody meets who replaces what he
// uses, and everybody gets his turn.
func TestTurns(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true))
	const files, people, rounds = 6, 8, 200
	var mu sync.Mutex
	var readers, writers [files]int
	note := func(reads, writes []objects.Ino, by int) (ok bool) {
		mu.Lock()
		defer mu.Unlock()
		ok = true
		for _, f := range writes {
			writers[f] += by
			ok = ok && (by < 0 || writers[f] == 1 && readers[f] == 0)
		}
		for _, f := range reads {
			ok = ok && (by < 0 || writers[f] == 0)
			readers[f] += by
		}
		return ok
	}
	var all sync.WaitGroup
	for p := range people {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for range rounds {
				var reads, writes []objects.Ino
				for f := range files {
					switch rng.IntN(4) {
					case 0:
						writes = append(writes, objects.Ino(f))
					case 1:
						reads = append(reads, objects.Ino(f))
					}
				}
				done, err := r.store.TakeTurn(r.ctx(), reads, writes)
				if err != nil {
					t.Error(err)
					return
				}
				if !note(reads, writes, 1) {
					t.Errorf("files %v are read and %v replaced while others have them", reads, writes)
				}
				note(reads, writes, -1)
				done()
			}
		})
	}
	all.Wait()
}

// TestTurnsInOrder: who comes first is first, who reads does not wait for who reads,
// and who gives up is waited for no more.
func TestTurnsInOrder(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true))
	one, two := []objects.Ino{1}, []objects.Ino{2}
	take := func(ctx context.Context, reads, writes []objects.Ino) func() {
		t.Helper()
		done, err := r.store.TakeTurn(ctx, reads, writes)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	over, cancel := context.WithCancel(r.ctx())
	cancel()
	first, second := take(r.ctx(), one, nil), take(r.ctx(), one, nil)
	// One that replaces has to wait, and gives up; the same where it reads as well.
	for _, reads := range [][]objects.Ino{nil, one, two} {
		if _, err := r.store.TakeTurn(over, reads, one); !errors.Is(err, context.Canceled) {
			t.Fatalf("a file that others read: %v", err)
		}
	}
	third := take(r.ctx(), one, two) // nobody waits before it any more
	waiting := make(chan func(), 1)
	go func() { waiting <- take(r.ctx(), nil, []objects.Ino{1, 2}) }()
	first()
	second()
	select {
	case <-waiting:
		t.Error("it has not waited")
	default:
	}
	third()
	third() // twice is once
	last := <-waiting
	if _, err := r.store.TakeTurn(over, two, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a file that is being replaced: %v", err)
	}
	last()
	take(r.ctx(), nil, []objects.Ino{1, 2})()
}
