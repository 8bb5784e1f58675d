package admin_test

import (
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestCallsAreMeasured makes calls in frames and over HTTP, and reads the metrics and the access
// log.
func TestCallsAreMeasured(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	calls := admin.NewCalls(zap.New(core))
	r := newKeyedRigWith(t, 0, func(o *admin.Options) { o.Calls = calls })
	s := r.open(t)
	keys, lists := []string{"a", keyMissing, "b"}, listOf(3)
	for range 2 {
		_, err := s.DevMGet(t.Context(), keys, lists, hetero.GetOptions{})
		fatal(t, err)
	}
	h := holdByHand(t, r.socket)
	if code, text := h.ask(adminapi.VerbExist, h.id, `{"keys":["a"]}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if code, _ := h.ask(adminapi.VerbClaim, h.id, `{"keys":["a","b"]}`); code != 400 {
		t.Fatalf("%d", code)
	}
	kit.Eventually(t, sessionPatience, func() bool { return seen.Len() == 4 })
	for i, want := range []map[string]any{
		{"verb": "mget", "keys": int64(3), "failed": int64(1), "bytes": uint64(3 * 4097), "outcome": "ok"},
		{"verb": "mget", "keys": int64(3), "failed": int64(1), "bytes": uint64(3 * 4097), "outcome": "ok"},
		{"verb": "exist", "keys": int64(1), "failed": int64(0), "bytes": uint64(0), "outcome": "ok"},
		{"verb": "claim", "keys": int64(2), "failed": int64(0), "bytes": uint64(0), "outcome": "invalid"},
	} {
		got := seen.All()[i].ContextMap()
		want["uid"], want["pid"] = int64(0), int64(os.Getpid())
		for name, value := range want {
			if got[name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, got[name], value)
			}
		}
		if us, ok := got["us"].(int64); !ok || us < 0 {
			t.Errorf("line %d: it took %v", i, got["us"])
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(calls)
	for _, want := range []struct {
		name, verb string
		value      float64
	}{
		{"keys_total", "mget", 6},
		{"keys_total", "exist", 1},
		{"keys_total", "claim", 2},
		{"keys_total", "mset", 0},
		{"keys_failed_total", "mget", 2},
		{"keys_failed_total", "claim", 0},
		{"calls_refused_total", "claim", 1},
		{"calls_refused_total", "mget", 0},
		{"call_seconds", "mget", 2},
		{"call_seconds", "exist", 1},
		{"call_seconds", "wait", 0},
	} {
		if got := sessionMetric(t, registry, want.name, want.verb); got != want.value {
			t.Errorf("%s of %s is %v, want %v", want.name, want.verb, got, want.value)
		}
	}
}

// sessionMetric returns the value of a counter of a verb, or the count of a histogram.
func sessionMetric(t *testing.T, from prometheus.Gatherer, name, verb string) float64 {
	t.Helper()
	families, err := from.Gather()
	fatal(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "hmcfs_session_"+name && m.GetLabel()[0].GetValue() == verb {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, verb)
	return 0
}
