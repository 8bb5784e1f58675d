package admin

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// FuzzCall decodes arbitrary bodies of a call: an accepted call is encoded to the same text
// again, and uses no more memory than was reserved.
func FuzzCall(f *testing.F) {
	for _, text := range []string{
		`{"keys":["a","b"],"lists":[{"device":"sim0","blobs":[{"memory":1,"off":5,"size":7}],"source_offset":-1}],"timeout":"20s"}`,
		`{"keys":["a"],"ttl":"1h","existing":"replace","async":true}`,
		`{"memory":18446744073709551615}`, `{}`, `null`, `{"lists":[null,{},{"blobs":[{},null]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var q, again adminapi.Call
		if sparseCall(text) != nil || adminapi.Unmarshal(text, &q) != nil {
			return
		}
		if got := weight(&q); got > 2*48*int64(len(text)) {
			t.Errorf("%d bytes of text weigh %d", len(text), got)
		}
		written, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if err = adminapi.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Errorf("%s is read as %s, %v", written, twice, err)
		}
	})
}

// FuzzRegister decodes arbitrary requests to register with any number of descriptors:
// accepted memory is of exactly one kind, with all descriptors received.
func FuzzRegister(f *testing.F) {
	for _, text := range []string{
		`{"device":"sim0","memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":0,"size":8}]},"descriptors":1}`,
		`{"file":true,"descriptors":1}`, `{"file":true}`, `{"descriptors":-1}`, `{"file":true,"memory":{}}`,
	} {
		f.Add([]byte(text), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, count uint8) {
		var r adminapi.Register
		if adminapi.Unmarshal(text, &r) != nil {
			return
		}
		m, err := memoryOf(r, make([]*os.File, count))
		if err != nil {
			return
		}
		if (m.Share != nil) == r.File || r.File && count != 1 || !r.File && len(m.Files) != int(count) || m.Local != nil {
			t.Errorf("%s with %d descriptors is %+v", text, count, m)
		}
	})
}

// TestBudget takes and gives amounts, in order.
func TestBudget(t *testing.T) {
	b := newBudget(10)
	if err := b.take(t.Context(), 11); err == nil {
		t.Error("more than there ever is was given")
	}
	for _, n := range []int64{6, 4} {
		if err := b.take(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- b.take(t.Context(), 7) }()
	waitFor(t, b, 1)
	go func() { second <- b.take(t.Context(), 3) }()
	waitFor(t, b, 2)
	b.give(6) // too few for the first, and the second waits behind it
	select {
	case err := <-second:
		t.Errorf("the second was served before the first: %v", err)
	default:
	}
	b.give(4)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	b.give(10)
	if left, _ := stateOf(b); left != 10 {
		t.Errorf("%d of 10 are left", left)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.take(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if err := b.take(over, 1); err == nil {
		t.Error("nothing was left, and given")
	}
	b.give(10)
	if left, waiting := stateOf(b); left != 10 || waiting != 0 {
		t.Errorf("%d of 10 are left, %d wait", left, waiting)
	}
}

// waitFor returns when that many requests wait.
func waitFor(t *testing.T, b *budget, n int) {
	t.Helper()
	kit.Eventually(t, time.Minute, func() bool {
		_, waiting := stateOf(b)
		return waiting == n
	})
}

// stateOf returns the amount left, and the number of waiting requests.
func stateOf(b *budget) (left int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left, len(b.waiting)
}
