package admin_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
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

// TestRequestsAreMeasured makes requests in frames and over HTTP, and reads the metrics and the access log. A stream, and an export
// that is held, are recorded once, before their first answer.
func TestRequestsAreMeasured(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	calls := admin.NewCalls(zap.New(core))
	r := newKeyedRigWith(t, owner+1, func(o *admin.Options) {
		o.Calls, o.Sharer = calls, &sharer{memory: kit.Memfd(t, 7, memorySize)}
	})
	r.list([]adminapi.Key{{Key: "a"}, {Key: "b"}}, nil)
	f := openFrames(t, r.socket)
	memory := kit.Memfd(t, 3, memorySize)
	for i, c := range []struct {
		verb    frames.RequestVerb
		text    string
		files   []*os.File
		kind    frames.Kind
		name    string
		keys    int64
		outcome string
	}{
		{
			frames.RequestRegister, `{"device":"sim0","memory":{"family":"sim","size":4,"pieces":[{"kind":"memfd","fd":0,"size":4}]}}`,
			[]*os.File{memory},
			frames.KindReply, "register", 0, "ok",
		},
		{frames.RequestRegister, `[]`, nil, frames.KindFailure, "register", 0, "invalid"},
		{frames.RequestBind, `{}`, nil, frames.KindFailure, "bind", 0, "invalid"},
		{frames.RequestExport, `{"hold":true}`, []*os.File{memory}, frames.KindPart, "export", 0, "ok"},
		{frames.RequestExport, `{}`, nil, frames.KindFailure, "export", 0, "invalid"},
		{frames.RequestCollect, `{}`, nil, frames.KindFailure, "collect", 0, "unsupported"},
		{frames.RequestVerify, `{}`, nil, frames.KindFailure, "verify", 0, "unsupported"},
		{frames.RequestKeys, `{}`, nil, frames.KindReply, "keys", 2, "ok"},
		{frames.RequestWatch, `{}`, nil, frames.KindPart, "watch", 0, "ok"},
		{frames.RequestWatch, `[]`, nil, frames.KindFailure, "watch", 0, "invalid"},
		{200, `{}`, nil, frames.KindFailure, "request-unknown", 0, "unsupported"},
	} {
		id := uint64(i + 1)
		if len(c.files) > 0 {
			fatal(t, f.channel.Send(id, c.files))
		}
		f.request(c.verb, id, c.text, len(c.files))
		if c.kind == frames.KindFailure {
			f.failed(id)
		} else {
			f.replied(c.kind, id, nil)
		}
		checkLine(t, seen, i+1, c.name, c.keys, c.outcome)
	}
	for i, held := range []uint64{4, 9} {
		f.write(cancelOf(held))
		f.replied(frames.KindLast, held, nil)
		if seen.Len() != 11 {
			t.Errorf("%d lines after the end of %d", seen.Len(), i+1)
		}
	}
	h := holdByHand(t, r.socket)
	for i, c := range []struct {
		method, path, session, name string
		keys                        int64
		status                      int
		outcome                     string
	}{
		{"GET", adminapi.PathKeys, "", "keys", 2, 200, "ok"},
		{"GET", adminapi.PathEvents, "", "watch", 0, 200, "ok"},
		{"POST", adminapi.PathExport, "", "export", 0, 403, "forbidden"},
		{"POST", adminapi.PathRegister, h.id, "register", 0, 400, "invalid"},
	} {
		if got := h.status(c.method, c.path, c.session); got != c.status {
			t.Errorf("%s: %d", c.path, got)
		}
		checkLine(t, seen, 12+i, c.name, c.keys, c.outcome)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(calls)
	for name, want := range map[string][2]float64{
		"register": {3, 2}, "bind": {1, 1}, "export": {3, 2}, "collect": {1, 1}, "verify": {1, 1}, "keys": {2, 0}, "watch": {3, 1},
		"request-unknown": {1, 1},
	} {
		got := [2]float64{sessionMetric(t, registry, "call_seconds", name), sessionMetric(t, registry, "calls_refused_total", name)}
		if got != want {
			t.Errorf("%s: %v calls and refusals, want %v", name, got, want)
		}
	}
	if got := sessionMetric(t, registry, "keys_total", "keys"); got != 4 {
		t.Errorf("%v keys were listed", got)
	}
}

// checkLine fails the test unless the access log has n lines, and the last one is the given one.
func checkLine(t *testing.T, seen *observer.ObservedLogs, n int, verb string, keys int64, outcome string) {
	t.Helper()
	if seen.Len() != n {
		t.Fatalf("%d lines, want %d for %s", seen.Len(), n, verb)
	}
	got := seen.All()[n-1].ContextMap()
	if got["verb"] != verb || got["keys"] != keys || got["outcome"] != outcome || got["uid"] != int64(owner+1) || got["pid"] != int64(os.Getpid()) {
		t.Errorf("line %d is %v, want %s, %d, %s", n, got, verb, keys, outcome)
	}
}

// status makes a request without a body, and returns the status of its answer, which is not read.
func (h *byHand) status(method, path, session string) int {
	h.t.Helper()
	conn, err := net.Dial("unix", h.socket)
	fatal(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\nHmcfs-Session: %s\r\nContent-Length: 0\r\n\r\n", method, path, session)
	fatal(h.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	fatal(h.t, err)
	return resp.StatusCode
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
