package shm

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/window"
)

func TestJudge(t *testing.T) {
	near, far := connected(t, "unix")
	overTCP, _ := connected(t, "tcp")
	tr := New(Options{})
	setting := func() window.Setting { return window.Setting{Conn: far, Peer: 2, Logger: zap.NewNop()} }
	good, err := tr.Propose(window.Setting{Conn: near})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Evaluate(setting(), good); err != nil {
		t.Errorf("the same host and user: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(p []byte) []byte
		want   string
	}{
		"another version": {func(p []byte) []byte { p[0]++; return p }, "version"},
		"short":           {func(p []byte) []byte { return p[:10] }, "version"},
		"nothing":         {func([]byte) []byte { return nil }, "version"},
		"another host":    {func(p []byte) []byte { p[5]++; return p }, "different hosts"},
		"a relay":         {func(p []byte) []byte { p[28]++; return p }, "relays"},
	} {
		err := tr.Evaluate(setting(), tc.change([]byte(string(good))))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tr.Propose(window.Setting{Conn: overTCP}); err == nil || !strings.Contains(err.Error(), "Unix socket") {
		t.Errorf("over TCP: %v", err)
	}
	s := setting()
	s.Conn = overTCP
	if err := tr.Evaluate(s, good); err == nil {
		t.Error("taken over TCP")
	}
}

// FuzzFacts decodes arbitrary facts about a peer's host.
func FuzzFacts(f *testing.F) {
	f.Add((&facts{space: 1, pid: 2}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := parseFacts(p)
		if err == nil && string(got.append(nil)) != string(p) {
			t.Errorf("% x is read as %+v", p, got)
		}
	})
}
