package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// The roles of this test binary, by its first argument.
const (
	asSupervisor = "supervise-rank"
	asRunner     = "be-runner"
	asReducer    = "be-reducer"
	asContext    = "be-context"
	asBarrier    = "be-barrier"
	asHost       = "be-host"
	asHostile    = "be-hostile"
)

func TestMain(m *testing.M) {
	// With the race detector each process would sleep for a second at its exit.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	if len(os.Args) < 2 {
		spread.Main(m)
	}
	var err error
	switch os.Args[1] {
	case asSupervisor:
		err = Supervise(context.Background(), os.Args[3:], os.Getenv("HMCFS_JOB_DIR"))
	case asRunner:
		o := options(os.Args[3], os.Stdout, os.Args[4:]...)
		o.Ranks = 2
		if os.Getenv("HOSTS") != "" {
			remotely(&o, os.Args[3])
		}
		var p *Plan
		if p, err = NewPlan(o, nil); err == nil {
			_, err = Run(context.Background(), p, nil)
		}
	case asHost:
		err = ServeHost(context.Background(), os.Stdin, os.Stdout, hostOptions(os.Args[2]))
	case asHostile:
		err = hostile(os.Args[2])
	case asReducer:
		err = reducer(os.Args[2:])
	case asContext:
		err = contextRank(os.Args[2])
	case asBarrier:
		rank, _ := strconv.Atoi(os.Getenv("HMCFS_RANK"))
		err = Barrier(context.Background(), os.Getenv("HMCFS_BARRIER"), "b", rank, time.Minute)
	default:
		spread.Main(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// options returns the options of a job that runs this test binary.
func options(tmp string, out *os.File, program ...string) Options {
	return Options{
		Program: program, HostOptions: *hostOptions(tmp), Out: out, Errors: out, Grace: time.Minute,
	}
}

// output is a buffer to which two streams may write.
type output struct {
	mu sync.Mutex
	// +checklocks:mu
	b bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// world is a test's job.
type world struct {
	t         *testing.T
	dir       string
	out, errs output
	options   Options
}

func newWorld(t *testing.T, ranks int, program ...string) *world {
	t.Helper()
	kit.Check(t)
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: dir}
	w.options = options(dir, nil, program...)
	w.options.Ranks, w.options.Out, w.options.Errors = ranks, &w.out, &w.errs
	return w
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// run runs the job, and checks that nothing is left of it.
func (w *world) run(ctx context.Context, c *Config) (*Report, error) {
	w.t.Helper()
	p, err := NewPlan(w.options, c)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := Run(ctx, p, nil)
	w.empty()
	return r, err
}

// empty checks that no directory of a job is left.
func (w *world) empty() {
	w.t.Helper()
	left, err := filepath.Glob(filepath.Join(w.dir, "hmcfs-job-*"))
	if err != nil || len(left) != 0 {
		w.t.Errorf("left over: %v, %v", left, err)
	}
}

func TestRanksKnowWhoTheyAre(t *testing.T) {
	w := newWorld(t, 11, "sh", "-c", `echo "$HMCFS_RANK of $HMCFS_WORLD, window $(stat -L -c %s "$HMCFS_WINDOW")"; echo "to $HMCFS_ROOT" >&2; printf unended`)
	w.options.Window = 4096
	w.options.LogDir = filepath.Join(w.dir, "logs")
	r, err := w.run(t.Context(), nil)
	if err != nil || len(r.Failed()) != 0 || len(r.Endings) != 11 {
		t.Fatalf("%+v, %v", r, err)
	}
	lines := strings.Split(strings.TrimSpace(w.out.String()), "\n")
	slices.Sort(lines)
	var want []string
	for rank := range 11 {
		want = append(want, fmt.Sprintf("[%2d] %d of 11, window 4096", rank, rank), fmt.Sprintf("[%2d] unended", rank))
		log, err := os.ReadFile(filepath.Join(w.options.LogDir, fmt.Sprintf("rank%d.log", rank)))
		if err != nil || !strings.Contains(string(log), fmt.Sprintf("%d of 11", rank)) || !strings.Contains(string(log), "to 0\n") {
			t.Errorf("log of rank %d: %q, %v", rank, log, err)
		}
	}
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	if got := strings.Count(w.errs.String(), "] to 0\n"); got != 11 {
		t.Errorf("%d lines of standard error: %q", got, w.errs.String())
	}
}

// reducer is simpler's treduce: the root adds the inputs of all windows.
func reducer(args []string) error {
	n, root := must(strconv.Atoi(args[2])), must(strconv.Atoi(args[3]))
	if own := must(strconv.Atoi(os.Getenv("HMCFS_RANK"))); own != root {
		return nil
	}
	count, off := must(strconv.Atoi(os.Getenv("HMCFS_BUFFER_INPUT_COUNT"))), must(strconv.Atoi(os.Getenv("HMCFS_BUFFER_INPUT_OFFSET")))
	sums := make([]float32, count)
	for r := range n {
		p := must(os.ReadFile(filepath.Join(os.Getenv("HMCFS_WINDOWS"), strconv.Itoa(r))))[off:]
		for i := range sums {
			sums[i] += math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
	}
	path, at, _ := strings.Cut(args[1], "@")
	start, _, _ := strings.Cut(at, "+")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	p := make([]byte, 4*count)
	for i, s := range sums {
		binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(s))
	}
	_, err = f.WriteAt(p, int64(must(strconv.Atoi(start))))
	return errors.Join(err, f.Close())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// treduce is the config of contract case 14.
func treduce(ranks int) *Config {
	return &Config{
		Ranks: &ranks, WinSyncPrefix: 256,
		Buffers: []Buffer{
			{Name: "input", DType: "float32", Count: 256, Placement: "window"},
			{Name: "output", DType: "float32", Count: 256, Placement: "device"},
		},
		Inputs: []string{"input"}, Outputs: []string{"output"},
		Args:     []string{"input", "output", "nranks", "root", "deviceCtx"},
		Generate: &Source{Values: map[string]string{"input": "i + 100*rank"}},
		Golden:   &Source{Values: map[string]string{"output": "nranks*i + 100*nranks*(nranks-1)/2"}},
	}
}

func TestTreduce(t *testing.T) {
	for _, c := range []struct {
		ranks            int
		first, last, sum float64
	}{{8, 2800, 4840, 977920}, {4, 600, 1620, 284160}} {
		t.Run(strconv.Itoa(c.ranks), func(t *testing.T) {
			w := newWorld(t, 0, self(), asReducer)
			w.options.Save = filepath.Join(w.dir, "saved")
			r, err := w.run(t.Context(), treduce(c.ranks))
			if err != nil || r.Verdict == nil || !r.Verdict.Passed() || r.Verdict.Compared != 256 {
				t.Fatalf("%+v, %v, %s", r.Verdict, err, w.errs.String())
			}
			var sum float64
			p := must(os.ReadFile(filepath.Join(w.options.Save, "rank_0", "output.bin")))
			at := func(i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))) }
			for i := range 256 {
				sum += at(i)
			}
			if at(0) != c.first || at(255) != c.last || sum != c.sum {
				t.Errorf("%v … %v, sum %v", at(0), at(255), sum)
			}
			for rank := 1; rank < c.ranks; rank++ {
				p := must(os.ReadFile(filepath.Join(w.options.Save, fmt.Sprintf("rank_%d", rank), "output.bin")))
				if len(bytes.Trim(p, "\x00")) != 0 {
					t.Errorf("the output of rank %d was written", rank)
				}
			}
		})
	}
}

// TestWrongOutputs: an output that was not written, or has one byte changed, fails
// verification.
func TestWrongOutputs(t *testing.T) {
	w := newWorld(t, 0, "true")
	r, err := w.run(t.Context(), treduce(4))
	if err != nil || r.Verdict.Passed() || r.Verdict.Wrong != 256 || len(r.Verdict.First) != shown {
		t.Fatalf("%+v, %v", r.Verdict, err)
	}
	c := treduce(2)
	c.Buffers[1].DType, c.Buffers[1].Count = "int16", 100
	c.Golden.Values["output"] = "i - 50"
	c.Verify = "all"
	c.Generate.Values["input"], c.Inputs = "0", []string{"output"}
	c.Generate = &Source{Values: map[string]string{"output": "i - 50"}}
	w = newWorld(t, 0, "sh", "-c", `if [ $HMCFS_RANK = 1 ]; then printf '\001' | dd of="$HMCFS_BUFFER_OUTPUT" bs=1 seek=$((77*2)) conv=notrunc status=none; fi`)
	r, err = w.run(t.Context(), c)
	if err != nil || r.Verdict.Wrong != 1 || r.Verdict.Compared != 200 {
		t.Fatalf("%+v, %v", r.Verdict, err)
	}
	if got := r.Verdict.First[0].String(); got != "rank 1 output[77]: got 1, want 27" {
		t.Error(got)
	}
}

func TestSources(t *testing.T) {
	w := newWorld(t, 0, "sh", "-c", `cat "$HMCFS_BUFFER_X" "$HMCFS_BUFFER_Y"`)
	two := 2
	c := &Config{
		Ranks: &two, Buffers: []Buffer{{Name: "x", DType: "uint8", Count: 3}, {Name: "y", DType: "uint8", Count: 3}},
		Inputs: []string{"x", "y"}, Outputs: []string{"x"},
		Generate: &Source{Command: []string{"sh", "-c", `cd "$HMCFS_OUT"; printf a%s- $HMCFS_RANK > x.bin; printf b%s. $HMCFS_RANK > y.bin`}},
		Golden:   &Source{Files: map[string]string{"x": filepath.Join(w.dir, "want.{rank}")}},
	}
	want := filepath.Join(w.dir, "want.0")
	if err := os.WriteFile(want, []byte("a0-"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := w.run(t.Context(), c)
	if err != nil || !r.Verdict.Passed() {
		t.Fatalf("%+v, %v", r, err)
	}
	if out := w.out.String(); !strings.Contains(out, "[0] a0-b0.\n") || !strings.Contains(out, "[1] a1-b1.\n") {
		t.Errorf("%q", out)
	}
	// A file of the wrong size, a missing file, and a command that fails.
	if err = os.WriteFile(want, []byte("a0-more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = w.run(t.Context(), c); !errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "want.0 has 7 bytes, but the buffer has 3") {
		t.Error(err)
	}
	c.Generate.Command[2] = `printf abc > "$HMCFS_OUT/x.bin"`
	if _, err = w.run(t.Context(), c); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "generate for rank 0: y: y.bin does not exist") {
		t.Error(err)
	}
	c.Generate.Command[2] = `echo no luck >&2; exit 4`
	if _, err = w.run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "rank 0 ended with exit code 4: no luck") {
		t.Error(err)
	}
}

// contextRank maps all windows at the addresses of the context, and writes its rank into
// each.
func contextRank(path string) error {
	p := must(os.ReadFile(path))
	rank, n := int(binary.LittleEndian.Uint32(p[16:])), int(binary.LittleEndian.Uint32(p[20:]))
	size := binary.LittleEndian.Uint64(p[24:])
	if len(p) != 1056 || strconv.Itoa(rank) != os.Getenv("HMCFS_RANK") || strconv.Itoa(n) != os.Getenv("HMCFS_WORLD") || size != 4096 {
		return fmt.Errorf("context of %d bytes: rank %d of %d, windows of %d", len(p), rank, n, size)
	}
	for r := range n {
		at := binary.LittleEndian.Uint64(p[32+8*r:])
		if at == 0 || at != binary.LittleEndian.Uint64(p[544+8*r:]) {
			return fmt.Errorf("window %d at %#x", r, at)
		}
		f, err := os.OpenFile(filepath.Join(os.Getenv("HMCFS_WINDOWS"), strconv.Itoa(r)), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		mem, err := mapAt(uintptr(at), int(size), f)
		if err != nil {
			return err
		}
		mem[rank]++
	}
	return nil
}

func TestContextSaysWhereWindowsAre(t *testing.T) {
	w := newWorld(t, 0, self(), asContext)
	three := 3
	c := &Config{
		Ranks: &three, Buffers: []Buffer{{Name: "w", DType: "uint8", Count: 3, Placement: "window"}}, Outputs: []string{"w"},
		Args: []string{"deviceCtx"}, Window: "4096", Verify: "all", Golden: &Source{Values: map[string]string{"w": "1"}},
	}
	r, err := w.run(t.Context(), c)
	if err != nil || !r.Verdict.Passed() {
		t.Fatalf("%+v, %v, %s", r, err, w.errs.String())
	}
}

// TestFilesOfADirectory: with Dir, windows and buffers are files, which are removed with
// the job.
func TestFilesOfADirectory(t *testing.T) {
	w := newWorld(t, 0, self(), asReducer)
	w.options.Dir = filepath.Join(w.dir, "mount")
	if err := os.Mkdir(w.options.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := w.run(t.Context(), treduce(3))
	if err != nil || !r.Verdict.Passed() {
		t.Fatalf("%+v, %v", r, err)
	}
	left, err := os.ReadDir(w.options.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestWindowsAreNotCut: opening a window with truncation does not destroy it for the other
// ranks.
func TestWindowsAreNotCut(t *testing.T) {
	w := newWorld(t, 1, "sh", "-c", `echo x > "$HMCFS_WINDOW" && echo cut; stat -L -c %s "$HMCFS_WINDOW"`)
	w.options.Window = 8192
	if _, err := w.run(t.Context(), nil); err != nil || w.out.String() != "[0] 8192\n" {
		t.Errorf("%q, %v", w.out.String(), err)
	}
}

func TestBarriers(t *testing.T) {
	w := newWorld(t, 4, "sh", "-c", `for i in 1 2 3 4 5; do printf $HMCFS_RANK$i >> "$LOG"; "`+self()+`" `+asBarrier+` || exit 9; done`)
	log := filepath.Join(w.dir, "log")
	if _, err := w.run(t.Context(), &Config{Env: map[string]string{"LOG": log}}); err != nil {
		t.Fatal(err, w.errs.String())
	}
	p := must(os.ReadFile(log))
	for round := range 5 {
		for i := range 4 {
			if at := p[8*round+2*i+1]; at != '1'+byte(round) {
				t.Fatalf("%s: round %d has a step of round %c", p, round+1, at)
			}
		}
	}
}

func TestBarrierNamesWhoIsMissing(t *testing.T) {
	kit.Check(t)
	dir := must(os.MkdirTemp("", "r")) //nolint:usetesting // the path of t.TempDir is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "b.sock")
	m := newJobBarriers(3)
	h := &host{part: part{count: 3}, out: make(chan []byte, mostQueued), arrivals: map[uint64]arrival{}}
	var loop sync.Mutex // the runner's loop handles one message after the other
	d := must(newHostBarrier(socket, 0, 4, func(k kind, v any) error {
		loop.Lock()
		defer loop.Unlock()
		switch v := v.(type) {
		case numberedArrival:
			return m.come(h, &v)
		case departure:
			m.leave(h, v.ID)
		}
		return nil
	}))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for p := range h.out {
			f, _, err := readFrame(bytes.NewReader(p), nil)
			if err != nil {
				t.Error(err)
			}
			got := must(decode[passage](f))
			d.answer(got.ID, got.Answer)
		}
	}()
	defer func() {
		m.close()
		close(h.out)
		<-answered
		d.close()
	}()
	ctx := t.Context()
	err := Barrier(ctx, socket, "x", 1, time.Millisecond)
	var missing *MissingError
	if !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{0, 2}) || missing.Ended {
		t.Fatal(err)
	}
	// The earlier arrival of rank 1 no longer counts: all three ranks have to come.
	var all sync.WaitGroup
	for rank := range 3 {
		all.Go(func() {
			if berr := Barrier(ctx, socket, "x", rank, 0); berr != nil {
				t.Errorf("rank %d: %v", rank, berr)
			}
		})
	}
	all.Wait()
	// A caller that has disconnected counts as not having come.
	cut, cancel := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() { gone <- Barrier(cut, socket, "y", 2, 0) }()
	waiting := func(name string) int {
		loop.Lock()
		defer loop.Unlock()
		return len(m.waiting[name])
	}
	kit.Eventually(t, time.Minute, func() bool { return waiting("y") == 1 })
	if err = Barrier(ctx, socket, "y", 2, 0); err == nil || !strings.Contains(err.Error(), "is already waiting at this barrier") {
		t.Error(err)
	}
	cancel()
	if err = <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	kit.Eventually(t, time.Minute, func() bool { return waiting("y") == 0 })
	// A rank that has ended never comes.
	m.end(0)
	if err = Barrier(ctx, socket, "z", 1, 0); !errors.As(err, &missing) || !missing.Ended || !slices.Equal(missing.Ranks, []int{0}) {
		t.Error(err)
	}
	if err = Barrier(ctx, socket, "z", 7, 0); err == nil || !strings.Contains(err.Error(), "not understood") {
		t.Error(err)
	}
}

// running reports whether a process is running.
func running(pid int) bool { return unix.Kill(pid, 0) == nil }

// pids reads the process ids that ranks have written to a file.
func pids(file string) []int {
	text, _ := os.ReadFile(file)
	var out []int
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// background makes a rank start a process in a session of its own, and write the process
// ids of both.
const background = `(setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 1000' &); echo $$ >> "$PIDS"; `

func TestOneRankFailsAllEnd(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"exit code":  {`if [ $HMCFS_RANK = 1 ]; then until [ $(wc -l < "$PIDS") = 6 ]; do :; done; exit 7; fi; sleep 1000`, "rank 1 ended with exit code 7; the other ranks were ended"},
		"signal":     {`if [ $HMCFS_RANK = 1 ]; then until [ $(wc -l < "$PIDS") = 6 ]; do :; done; kill -9 $$; fi; sleep 1000`, "rank 1 was ended by SIGKILL; the other ranks were ended"},
		"supervisor": {`if [ $HMCFS_RANK = 1 ]; then until [ $(wc -l < "$PIDS") = 6 ]; do :; done; kill -9 $PPID; fi; sleep 1000`, "rank 1: its supervisor was killed; the other ranks were ended"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, "sh", "-c", background+c.script)
			file := filepath.Join(w.dir, "pids")
			r, err := w.run(t.Context(), &Config{Env: map[string]string{"PIDS": file}})
			if !errors.Is(err, ErrRank) || err.Error() != c.want || len(r.Failed()) != 1 {
				t.Errorf("%v, %+v", err, r)
			}
			all := pids(file)
			if len(all) != 6 {
				t.Fatalf("%v", all)
			}
			kit.Eventually(t, time.Minute, func() bool { return !slices.ContainsFunc(all, running) })
		})
	}
}

// TestDeafRanksAreKilled: after the timeout, ranks that ignore SIGTERM are killed.
func TestDeafRanksAreKilled(t *testing.T) {
	w := newWorld(t, 2, "sh", "-c", background+`trap "" TERM; while :; do sleep 1000; done`)
	file := filepath.Join(w.dir, "pids")
	w.options.Timeout, w.options.Grace = 200*time.Millisecond, 100*time.Millisecond
	_, err := w.run(t.Context(), &Config{Env: map[string]string{"PIDS": file}})
	if !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	kit.Eventually(t, time.Minute, func() bool { return !slices.ContainsFunc(pids(file), running) })
}

func TestStopped(t *testing.T) {
	w := newWorld(t, 2, "sh", "-c", `trap 'echo orderly; exit 0' TERM; echo > "$READY.$HMCFS_RANK"; sleep 1000 & wait`)
	ctx, cancel := context.WithCancel(t.Context())
	ready := filepath.Join(w.dir, "ready")
	go func() {
		defer cancel()
		for _, err := os.Stat(ready + ".0"); err != nil; _, err = os.Stat(ready + ".0") {
			if ctx.Err() != nil {
				return
			}
		}
		for _, err := os.Stat(ready + ".1"); err != nil; _, err = os.Stat(ready + ".1") {
			if ctx.Err() != nil {
				return
			}
		}
	}()
	_, err := w.run(ctx, &Config{Env: map[string]string{"READY": ready}})
	if !errors.Is(err, ErrStopped) || strings.Count(w.out.String(), "orderly") != 2 {
		t.Errorf("%v, %q", err, w.out.String())
	}
}

// TestRunnerIsKilled: no process survives a runner that is killed without warning.
func TestRunnerIsKilled(t *testing.T) { killRunner(t, 4) }

// killRunner kills a runner whose ranks ignore SIGTERM, once the given number of processes
// runs.
func killRunner(t *testing.T, processes int, env ...string) {
	t.Helper()
	w := newWorld(t, 0)
	file := filepath.Join(w.dir, "pids")
	cmd := exec.Command(self(), asRunner, "--", w.dir, "sh", "-c", background+`trap "" TERM HUP INT; while :; do sleep 1000; done`)
	cmd.Env = append(append(os.Environ(), "PIDS="+file), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, func() bool { return len(pids(file)) == processes })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	kit.Eventually(t, time.Minute, func() bool { return !slices.ContainsFunc(pids(file), running) })
	kit.Eventually(t, time.Minute, func() bool {
		left, _ := filepath.Glob(filepath.Join(w.dir, "hmcfs-job-*"))
		return len(left) == 0
	})
}

func TestNoProgram(t *testing.T) {
	w := newWorld(t, 2, "no-such-program-is-here")
	if _, err := w.run(t.Context(), nil); !errors.Is(err, ErrProgram) {
		t.Error(err)
	}
	script := filepath.Join(w.dir, "not-a-program")
	if err := os.WriteFile(script, []byte("\x00garbage"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.options.Program = []string{script}
	if _, err := w.run(t.Context(), nil); !errors.Is(err, ErrRank) || !strings.Contains(err.Error(), "exec format error") {
		t.Error(err)
	}
}
