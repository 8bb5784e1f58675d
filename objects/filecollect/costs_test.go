package filecollect

import (
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// TestMeasured keeps measurements for a while, for the same nodes in the same incarnations
// only.
func TestMeasured(t *testing.T) {
	var m measured
	now := time.Unix(1000, 0)
	ask := func(costs string, nodes ...string) *proto.CollectAsk {
		a := &proto.CollectAsk{Costs: []byte(costs)}
		for _, n := range nodes {
			a.Nodes, a.Epochs = append(a.Nodes, n[:1]), append(a.Epochs, uint64(n[1]))
		}
		return a
	}
	want := func(a *proto.CollectAsk, at time.Time, costs string) {
		t.Helper()
		if got := m.get(a, at); string(got) != costs {
			t.Errorf("nodes %q of %v: %q, want %q", a.Nodes, a.Epochs, got, costs)
		}
	}
	m.put(ask("", "a1", "b1"), []byte("ab"), now)
	want(ask("", "a1", "b1"), now, "ab")
	want(ask("", "b1", "a1"), now, "ab")
	want(ask("", "a1", "b2"), now, "")
	want(ask("", "a1", "b1", "c1"), now, "")
	// Costs that were given do not extend the lifetime.
	m.put(ask("ab", "a1", "b1"), []byte("ab"), now.Add(costsFor/2))
	want(ask("", "a1", "b1"), now.Add(costsFor-1), "ab")
	want(ask("", "a1", "b1"), now.Add(costsFor), "")
	m.put(ask("", "a1", "b1"), nil, now)
	want(ask("", "a1", "b1"), now, "")
	for i := range 3 * maxMeasured {
		m.put(ask("", "a1", "b"+string(rune(i))), []byte("x"), now)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.groups); n > maxMeasured {
		t.Errorf("%d are kept", n)
	}
}
