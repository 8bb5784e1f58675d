package perf

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
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

// TestVerifySees checks that verification detects a single flipped bit, bytes in a wrong
// place, and content left by another row.
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

// server serves on a Unix socket until the test ends, or once.
func server(t *testing.T, o Options, once bool) control.Address {
	t.Helper()
	at := control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		err := Serve(ctx, ServeOptions{
			Options: o, Listen: []control.Address{at}, Once: once,
			Listening: func(control.Address) error { close(ready); return nil },
		})
		if err != nil && (once || !errors.Is(err, context.Canceled)) {
			t.Error(err)
		}
	})
	<-ready
	t.Cleanup(func() {
		if !once {
			stop()
		}
		done.Wait()
		stop()
	})
	return at
}

// some returns options for both sides.
func some() Options {
	return Options{
		Secret: kit.Bytes(1, 0, 32), Memory: []string{"host", "sim:0,size=1MiB"}, Families: devices.NewRegistry(sim.NewDriver()),
		Progress: func(string) {},
	}
}

// few runs a short measurement with a server.
func few(o Options, at control.Address) RunOptions {
	return RunOptions{
		Options: o, Peers: []control.Address{at}, Transports: []comm.Transport{comm.TCP}, Operations: Operations(),
		Sizes: []devices.Size{8, 4096, 100_000}, Bytes: 100_000, Rounds: 10, WarmUp: 2, Depth: 1,
	}
}

func TestServeAndRun(t *testing.T) {
	kit.Check(t)
	at := server(t, some(), true)
	report, err := Run(t.Context(), few(some(), at))
	if err != nil {
		t.Fatal(err)
	}
	// One row for tags; for each memory three latencies, and four operations of three
	// sizes.
	if len(report.Rows) != 1+2*(3+4*3) || len(report.Sessions) != 1 || report.Sessions[0].Transport != comm.TCP {
		t.Errorf("%d rows of %+v", len(report.Rows), report.Sessions)
	}
	for _, row := range report.Rows {
		carried := row.Mode == bandwidth || row.Operation == OpPut || row.Operation == OpGet
		if row.MedianUS <= 0 || row.P99US < row.MedianUS || row.MeanUS <= 0 || carried != row.Verified {
			t.Errorf("%+v", row)
		}
		if want := float64(row.Bytes) / row.MedianUS / 1e3; row.Mode == bandwidth && (row.GBs < want*0.99 || row.GBs > want*1.01) {
			t.Errorf("%+v: %v GB/s", row, want)
		}
	}
	var csv strings.Builder
	if err := report.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(csv.String(), "\n")
	if len(lines) != 1+len(report.Rows)+1 || lines[0] != "Mode,Data Size (MB),Time(us),Bandwidth(Gbps)" {
		t.Errorf("CSV: %q", csv.String())
	}
	if !strings.HasPrefix(lines[2], "put-unix-host,8e-06,") {
		t.Errorf("CSV row of %+v: %q", report.Rows[1], lines[2])
	}
}

// A put through host memory, between device memory at both ends.
func TestBounce(t *testing.T) {
	kit.Check(t)
	at := server(t, some(), true)
	o := few(some(), at)
	o.Operations, o.Depth = []string{OpPut, OpBounce}, 2
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, row := range report.Rows {
		if row.Mode != bandwidth {
			continue
		}
		rows[row.Operation+" "+row.Memories()]++
		if !row.Verified || row.MedianUS <= 0 {
			t.Errorf("%+v", row)
		}
	}
	for _, want := range []string{"put host", "put sim0", "bounce host", "bounce sim0"} {
		if rows[want] != 3 {
			t.Errorf("%d rows of %s: %v", rows[want], want, rows)
		}
	}
}

// Each kind of memory at either end, several transfers at once, and several
// sessions with one server.
func TestPairsAndDepth(t *testing.T) {
	kit.Check(t)
	at := server(t, some(), true)
	o := few(some(), at)
	o.Transports = []comm.Transport{comm.TCP, comm.TCP}
	o.Operations, o.PeerMemory = []string{OpGet, OpRecv, OpSend}, []devices.Name{"sim0", Host}
	o.Iterations, o.Depth = 3, 4
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for i := range report.Rows {
		row := &report.Rows[i]
		if row.Mode == bandwidth && (row.Count != 3 || row.Depth != 4) || row.Mode == bandwidth && !row.Verified {
			t.Errorf("%+v", row)
		}
		if row.Operation == OpGet && row.Bytes == 4096 {
			pairs = append(pairs, row.Memories())
		}
	}
	if got, want := strings.Join(pairs, " "), strings.Repeat("host-sim0 host sim0 sim0-host ", 2); got+" " != want {
		t.Errorf("pairs %q, want %q", got, want)
	}
	if len(report.Sessions) != 2 {
		t.Errorf("sessions %+v", report.Sessions)
	}
}

// visit connects to a server as its runner, sends garbage if there is any, and leaves.
func visit(t *testing.T, at control.Address, garbage string) {
	t.Helper()
	mine := some()
	mine.Rank = runnerRank
	s, err := newStation(t.Context(), &mine)
	if err == nil {
		err = errors.Join(s.open(nil), s.comm.Connect(t.Context(), serverRank, at))
	}
	if err != nil {
		t.Fatal(err)
	}
	if garbage != "" {
		if err := s.comm.SendMessage(t.Context(), serverRank, []byte(garbage)); err != nil {
			t.Error(err)
		}
		if _, err := s.comm.RecvMessage(t.Context(), serverRank); !errors.Is(err, control.ErrDisconnected) {
			t.Errorf("after garbage: %v", err)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// A runner that disconnects before its end, or sends garbage, is reported, and the next one
// is served.
func TestServerOutlivesRunners(t *testing.T) {
	kit.Check(t)
	said := make(chan string, 4)
	o := some()
	o.Progress = func(line string) { said <- line }
	at := server(t, o, false)
	for _, garbage := range []string{"", "{"} {
		visit(t, at, garbage)
		line := ""
		for line == "" {
			select {
			case line = <-said:
			case <-time.After(time.Second):
				visit(t, at, garbage) // it had disconnected before the server noticed
			}
		}
		if !strings.Contains(line, "rank 1") || !strings.Contains(line, "before its end") {
			t.Errorf("the server says %q", line)
		}
	}
	if _, err := Run(t.Context(), few(some(), at)); err != nil {
		t.Errorf("the next runner: %v", err)
	}
	// The report about a repeated visit may come late.
	for line := range said {
		if line == "the client has disconnected" {
			break
		}
		if !strings.Contains(line, "before its end") {
			t.Errorf("the server says %q", line)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for text, want := range map[string][]devices.Size{
		"8":          {8},
		"8, 4KiB":    {8, 4096},
		"8..4096":    {8, 64, 512, 4096},
		"8..100,1":   {8, 64, 100, 1},
		"4096..4096": {4096},
		"32..100:2":  {32, 64, 100},
		"2..1KiB:16": {2, 32, 512, 1024},
	} {
		if got, err := ParseSizes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "9..8", "0..8", "8..", "..8", "2TiB", "x", "8,,9", "8..64:1", "8..64:", "8..64:2000", "8:2", "8..64:-2"} {
		if got, err := ParseSizes(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRunOptions(t *testing.T) {
	at := control.Address{Network: control.TCP, Addr: "127.0.0.1:1"}
	good := few(some(), at)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(o *RunOptions){
		"no sizes":   func(o *RunOptions) { o.Sizes = nil },
		"size 0":     func(o *RunOptions) { o.Sizes = []devices.Size{8, 0} },
		"huge sizes": func(o *RunOptions) { o.Sizes = []devices.Size{1 << 41} },
		"no peers":   func(o *RunOptions) { o.Peers = nil },
		"no rounds":  func(o *RunOptions) { o.Rounds = 0 },
		"no memory":  func(o *RunOptions) { o.Memory = nil },
		"iterations": func(o *RunOptions) { o.Iterations = -1 },
		"warm-up":    func(o *RunOptions) { o.WarmUp = -1 },
		"depth":      func(o *RunOptions) { o.Depth = 0 },
		"deep":       func(o *RunOptions) { o.Depth = maxDepth + 1 },
		"operation":  func(o *RunOptions) { o.Operations = []string{"push"} },
		"operations": func(o *RunOptions) { o.Operations = nil },
		"transport":  func(o *RunOptions) { o.Transports = []comm.Transport{"pigeon"} },
		"transports": func(o *RunOptions) { o.Transports = nil },
	} {
		o := few(some(), at)
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || err.Error() != o.Validate().Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]ServeOptions{
		"nowhere":   {Options: some()},
		"transport": {Options: some(), Listen: []control.Address{at}, Transports: []comm.Transport{Auto}},
	} {
		if err := Serve(t.Context(), o); err == nil {
			t.Errorf("%s: serves", name)
		}
	}
}
