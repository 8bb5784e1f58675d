package perf

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
)

// buffer is n registered bytes.
func buffer(t *testing.T, n devices.Size) *region.Buffer {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := region.NewTable(e).Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(context.Background()), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Verification sees a single bit, bytes in a wrong place, and what another
// row has left.
func TestVerifySees(t *testing.T) {
	const size = 2*piece + 13
	b := buffer(t, size)
	p := b.Host(0, size)
	look := func(seed uint64) int64 {
		t.Helper()
		at, err := verify(t.Context(), b, seed, size)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if err := write(t.Context(), b, 1, size); err != nil {
		t.Fatal(err)
	}
	if at := look(1); at != -1 {
		t.Fatalf("its own content differs at %d", at)
	}
	if at := look(2); at < 0 || at > 8 {
		t.Errorf("another seed differs at %d", at)
	}
	for _, at := range []int{0, 7, 8, piece - 1, piece, size - 13, size - 1} {
		p[at] ^= 4
		if got := look(1); got != int64(at) {
			t.Errorf("a bit at %d is seen at %d", at, got)
		}
		p[at] ^= 4
	}
	copy(p[8:], p[:piece])
	if at := look(1); at < 8 || at > 16 {
		t.Errorf("shifted by a word: seen at %d", at)
	}
}

func TestServeAndRun(t *testing.T) {
	kit.Check(t)
	at := control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
	o := Options{Secret: kit.Bytes(1, 0, 32), Memory: []string{"host"}, Progress: func(string) {}}
	var server sync.WaitGroup
	ready := make(chan struct{})
	server.Go(func() {
		if err := Serve(t.Context(), ServeOptions{
			Options: o, Listen: []control.Address{at}, Once: true,
			Listening: func(control.Address) error { close(ready); return nil },
		}); err != nil {
			t.Error(err)
		}
	})
	<-ready
	report, err := Run(t.Context(), RunOptions{
		Options: o, Peers: []control.Address{at}, MinSize: 8, MaxSize: 100_000, Bytes: 100_000, Rounds: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Wait()
	// A tag, two latencies, and puts and gets of 8, 64, 512, 4096, 32768 and
	// 100000 bytes.
	if len(report.Rows) != 3+2*6 {
		t.Errorf("%d rows", len(report.Rows))
	}
	for _, row := range report.Rows {
		if row.MedianUS <= 0 || row.P99US < row.MedianUS || (row.Operation != "tag") != row.Verified {
			t.Errorf("%+v", row)
		}
		if want := float64(row.Bytes) / row.MedianUS / 1e3; row.Mode == "bandwidth" && (row.GBs < want*0.99 || row.GBs > want*1.01) {
			t.Errorf("%+v: %v GB/s", row, want)
		}
	}
	var csv strings.Builder
	if err := report.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(csv.String(), "\n"); len(lines) != 1+len(report.Rows)+1 || lines[0] != "Mode,Data Size (MB),Time(us),Bandwidth(Gbps)" {
		t.Errorf("CSV: %q", csv.String())
	}
}

func TestRunOptions(t *testing.T) {
	peers := []control.Address{{Network: control.TCP, Addr: "127.0.0.1:1"}}
	for name, o := range map[string]RunOptions{
		"no sizes":   {Options: Options{Memory: []string{"host"}}, Peers: peers, Rounds: 1},
		"sizes":      {Options: Options{Memory: []string{"host"}}, Peers: peers, Rounds: 1, MinSize: 2, MaxSize: 1},
		"no peers":   {Options: Options{Memory: []string{"host"}}, Rounds: 1, MinSize: 1, MaxSize: 1},
		"no rounds":  {Options: Options{Memory: []string{"host"}}, Peers: peers, MinSize: 1, MaxSize: 1},
		"no memory":  {Peers: peers, Rounds: 1, MinSize: 1, MaxSize: 1},
		"huge sizes": {Options: Options{Memory: []string{"host"}}, Peers: peers, Rounds: 1, MinSize: 1, MaxSize: 1 << 41},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: runs", name)
		}
	}
}
