package transport_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport"
)

// TestRandomCopies copies and fills random spans of all kinds of places, and
// compares them with ordinary slices that underwent the same operations.
func TestRandomCopies(t *testing.T) {
	const size = 6 * int(testChunk)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEngine(t, transport.Options{ChunkSize: testChunk, Slots: 4, MaxPinned: 4 * testChunk})
	places, models := map[string]transporttest.Stretch{}, map[string][]byte{}
	all := ends(t)
	names := slices.Sorted(maps.Keys(all))
	for i, name := range names {
		models[name] = transporttest.Pattern(seed+uint64(i), size)
		places[name] = all[name].Make(t, models[name])
	}
	steps := 3000
	if testing.Short() {
		steps = 300
	}
	for step := range steps {
		src, dst := names[random.IntN(len(names))], names[random.IntN(len(names))]
		n := random.IntN(size)
		if random.IntN(2) == 0 {
			n = random.IntN(5000)
		}
		from, to := random.IntN(size-n+1), random.IntN(size-n+1)
		if random.IntN(10) == 0 {
			value := byte(random.UintN(256))
			if err := e.Fill(t.Context(), places[dst].Span(t, to, n), value); err != nil {
				t.Fatal(err)
			}
			copy(models[dst][to:to+n], bytes.Repeat([]byte{value}, n))
		} else {
			if _, err := e.Copy(t.Context(), places[dst].Span(t, to, n), places[src].Span(t, from, n)); err != nil {
				t.Fatal(err)
			}
			copy(models[dst][to:to+n], models[src][from:from+n])
		}
		if !bytes.Equal(places[dst].Read(t), models[dst]) {
			t.Fatalf("step %d: %d bytes from %s at %d to %s at %d went wrong", step, n, src, from, dst, to)
		}
	}
	if used := e.Stats().PinnedInUse; used != devices.Size(0) {
		t.Errorf("%v of slots still held", used)
	}
}
