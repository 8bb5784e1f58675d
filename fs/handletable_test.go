package fs

import (
	"sync"
	"testing"
)

func TestTableNeverGivesANumberTwice(t *testing.T) {
	var handles table[int]
	seen := map[uint64]bool{}
	for i := range 1000 {
		id := handles.put(i)
		if id == 0 || seen[id] {
			t.Fatalf("number %d given again", id)
		}
		seen[id] = true
		if got, ok := handles.take(id); !ok || got != i {
			t.Fatalf("took %d, %t; want %d", got, ok, i)
		}
	}
	if _, ok := handles.get(1); ok {
		t.Error("a released number is still known")
	}
	if _, ok := handles.take(1 << 60); ok {
		t.Error("a forged number is known")
	}
}

func TestTableInParallel(t *testing.T) {
	var handles table[uint64]
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range uint64(2000) {
				id := handles.put(i)
				if got, ok := handles.get(id); !ok || got != i {
					t.Errorf("got %d, %t; want %d", got, ok, i)
				}
				if i%2 == 0 {
					handles.take(id)
				}
			}
		})
	}
	group.Wait()
	if n := handles.len(); n != 8*1000 {
		t.Errorf("%d handles, want %d", n, 8*1000)
	}
	if all := handles.drain(); len(all) != 8*1000 || handles.len() != 0 {
		t.Errorf("drained %d, %d left", len(all), handles.len())
	}
}
