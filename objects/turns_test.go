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

// usage records which turns read and which replace which files.
type usage struct {
	mu sync.Mutex
	// +checklocks:mu
	readers map[objects.Ino]int
	// +checklocks:mu
	writers map[objects.Ino]int
}

// begin reports whether no conflicting turn is running.
func (u *usage) begin(reads, writes []objects.Ino) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	alone := true
	for _, f := range writes {
		u.writers[f]++
		alone = alone && u.writers[f] == 1 && u.readers[f] == 0
	}
	for _, f := range reads {
		u.readers[f]++
		alone = alone && u.writers[f] == 0
	}
	return alone
}

func (u *usage) end(reads, writes []objects.Ino) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range writes {
		u.writers[f]--
	}
	for _, f := range reads {
		u.readers[f]--
	}
}

// some returns random files to read and to replace.
func some(rng *rand.Rand, files int) (reads, writes []objects.Ino) {
	for f := range files {
		switch rng.IntN(4) {
		case 0:
			writes = append(writes, objects.Ino(f))
		case 1:
			reads = append(reads, objects.Ino(f))
		}
	}
	return reads, writes
}

// TestTurns has many goroutines take turns on some files: no two conflicting turns run
// at the same time, and each turn is granted.
func TestTurns(t *testing.T) {
	kit.Check(t)
	r := newRig(t, small(true))
	const files, people, rounds = 6, 8, 200
	u := &usage{readers: map[objects.Ino]int{}, writers: map[objects.Ino]int{}}
	var all sync.WaitGroup
	for p := range people {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for range rounds {
				reads, writes := some(rng, files)
				done, err := r.store.TakeTurn(r.ctx(), reads, writes)
				if err != nil {
					t.Error(err)
					return
				}
				if !u.begin(reads, writes) {
					t.Errorf("files %v are read and %v replaced while others have them", reads, writes)
				}
				u.end(reads, writes)
				done()
			}
		})
	}
	all.Wait()
}

// TestTurnsInOrder: turns have the order of the calls, readers do not wait for readers,
// and a call that is cancelled does not delay others.
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
	// A turn that replaces has to wait, and is cancelled; also if it reads as well.
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
