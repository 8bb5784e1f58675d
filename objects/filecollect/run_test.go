package filecollect

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// memory is a file of a test, in memory.
type memory struct {
	p    []byte
	fail error
	// panics makes it panic instead of returning an error.
	panics bool
}

func (m *memory) Read(_ context.Context, p []byte, off uint64) error {
	copy(p, m.p[off:off+uint64(len(p))])
	return m.failed()
}

func (m *memory) Write(_ context.Context, p []byte, off uint64) error {
	copy(m.p[off:off+uint64(len(p))], p)
	return m.failed()
}

func (m *memory) failed() error {
	if m.panics {
		panic("broken")
	}
	return m.fail
}

// reference returns the results of a task, computed in the simplest way.
func reference(t *testing.T, task Task, sources [][]byte) [][]byte {
	t.Helper()
	results := make([][]byte, task.Ranks)
	var sum []byte
	if task.Op != 0 {
		sum = append([]byte(nil), sources[0]...)
		for _, p := range sources[1:] {
			if err := elem.Combine(task.folds(), task.Type, sum, sum, p); err != nil {
				t.Fatal(err)
			}
		}
		if err := task.finish(sum); err != nil {
			t.Fatal(err)
		}
	}
	for r := range results {
		if !task.HasResult(r) {
			continue
		}
		part := task.part(r)
		switch task.Kind {
		case plan.AllReduce, plan.Reduce:
			results[r] = sum
		case plan.Broadcast:
			results[r] = sources[task.Root]
		case plan.AllGather:
			results[r] = bytes.Join(sources, nil)
		case plan.ReduceScatter:
			results[r] = sum[part.Off : part.Off+part.Len]
		case plan.AllToAll:
			for _, p := range sources {
				results[r] = append(results[r], p[part.Off:part.Off+part.Len]...)
			}
		default:
		}
	}
	return results
}

// world is a set of files on several nodes.
type world struct {
	files [][]File // by node
	out   []*memory
}

func newWorld(task Task, of []int, sources [][]byte) *world {
	w := &world{}
	for rank, node := range of {
		for len(w.files) <= node {
			w.files = append(w.files, nil)
		}
		f := File{Rank: rank}
		if task.HasSource(rank) {
			f.Source = &memory{p: sources[rank]}
		}
		var out *memory
		if task.HasResult(rank) {
			out = &memory{p: make([]byte, task.ResultSize(rank))}
			f.Result = out
		}
		w.out = append(w.out, out)
		w.files[node] = append(w.files[node], f)
	}
	return w
}

// run runs the task on all nodes.
func (w *world) run(t *testing.T, task Task, of []int) error {
	t.Helper()
	if len(w.files) == 1 {
		return Run(t.Context(), task, w.files[0], nil)
	}
	m := newMeeting(len(w.files))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make([]error, len(w.files))
	var all sync.WaitGroup
	for node, files := range w.files {
		all.Go(func() {
			engine, err := transport.New(transport.Options{})
			if err != nil {
				errs[node] = err
				return
			}
			errs[node] = Run(ctx, task, files, &Nodes{Group: seat{m, node}, Table: region.NewTable(engine), Of: of})
			errs[node] = errors.Join(errs[node], engine.Close())
			if errs[node] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// sourcesOf returns files of numbers that encode their places.
func sourcesOf(task Task) [][]byte {
	all := make([][]byte, task.Ranks)
	for r := range all {
		all[r] = kit.Bytes(uint64(r)+1, 0, int(task.Size))
		if task.Type != elem.Float32 {
			continue
		}
		for i := 0; i+4 <= len(all[r]); i += 4 {
			x := float32(int32(binary.LittleEndian.Uint32(all[r][i:]))) / 3e5
			binary.LittleEndian.PutUint32(all[r][i:], math.Float32bits(x))
		}
	}
	return all
}

func allKinds() []plan.Kind {
	return []plan.Kind{plan.AllReduce, plan.Reduce, plan.Broadcast, plan.AllGather, plan.ReduceScatter, plan.AllToAll}
}

// variants returns variants of a task that are carried out differently.
func variants(task Task, bytes uint64) []Task {
	if !task.Kind.Combines() {
		task.Type, task.Size = elem.Uint8, bytes
		return []Task{task}
	}
	var all []Task
	for _, op := range []elem.Op{elem.Sum, elem.Max, elem.Avg} {
		task.Op = op
		all = append(all, task)
	}
	// The order of the ranks affects the bits of floating-point sums.
	task.Type, task.Op, task.Strict = elem.Float32, elem.Sum, true
	return append(all, task)
}

// check runs a task with run, and compares the results with the reference.
func check(t *testing.T, task Task, of []int, run func(*world, *testing.T, Task, []int) error) {
	t.Helper()
	name := fmt.Sprintf("%v of %v, %d bytes of %v, strict %v", task.Kind, of, task.Size, task.Type, task.Strict)
	sources := sourcesOf(task)
	w := newWorld(task, of, sources)
	if err := run(w, t, task, of); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for r, want := range reference(t, task, sources) {
		if w.out[r] != nil && !bytes.Equal(w.out[r].p, want) {
			t.Fatalf("%s: rank %d has other bytes than it should", name, r)
		}
	}
}

func TestRun(t *testing.T) {
	for _, of := range [][]int{
		{0},
		{0, 0},
		{0, 0, 0},
		{0, 0, 0, 0, 0},
		{0, 1},
		{0, 1, 2},
		{0, 0, 1, 1},
		{0, 1, 0, 1},
		{0, 0, 0, 1},
		{0, 1, 1, 2, 0},
		{0, 1, 2, 3, 3, 2, 1, 0},
	} {
		n := uint64(len(of))
		for _, kind := range allKinds() {
			for _, count := range []uint64{0, 1, n - 1, n + 1, 70001} {
				task := Task{Kind: kind, Type: elem.Int32, Ranks: len(of), Size: 4 * count, Root: len(of) / 2}
				for _, one := range variants(task, count) {
					check(t, one, of, (*world).run)
				}
			}
		}
	}
}

// TestRunFails: the error names the rank that can't read or write, and a panic there is an
// error too.
func TestRunFails(t *testing.T) {
	for _, of := range [][]int{{0, 0, 0}, {0, 1, 1}} {
		for _, kind := range allKinds() {
			for _, reads := range []bool{true, false} {
				broken := errors.New("broken")
				rank, err := failOnce(t, kind, of, reads, &memory{fail: broken})
				var named *RankError
				if !errors.Is(err, broken) || !errors.As(err, &named) || named.Rank != rank {
					t.Errorf("%v of %v, reads %v: %v", kind, of, reads, err)
				}
				_, err = failOnce(t, kind, of, reads, &memory{panics: true})
				var panicked *PanicError
				if !errors.As(err, &panicked) || panicked.Value != "broken" || strings.Contains(err.Error(), "broken") ||
					!strings.Contains(panicked.String(), "(*memory).failed") {
					t.Errorf("%v of %v, reads %v, panics: %v", kind, of, reads, err)
				}
			}
		}
	}
}

// failOnce runs a task in which a file of one rank is broken.
func failOnce(t *testing.T, kind plan.Kind, of []int, reads bool, broken *memory) (failed int, err error) {
	t.Helper()
	task := Task{Kind: kind, Type: elem.Int32, Ranks: 3, Size: 4 << 20, Root: 1}
	if kind.Combines() {
		task.Op = elem.Sum
	}
	w := newWorld(task, of, sourcesOf(task))
	rank := 1
	if !reads && kind == plan.Broadcast {
		rank = 2
	}
	for _, files := range w.files {
		for i := range files {
			switch {
			case files[i].Rank != rank:
			case reads:
				broken.p = make([]byte, task.Size)
				files[i].Source = broken
			default:
				broken.p = make([]byte, task.ResultSize(rank))
				files[i].Result = broken
			}
		}
	}
	return rank, w.run(t, task, of)
}

func TestValidate(t *testing.T) {
	good := Task{Kind: plan.AllReduce, Type: elem.Float32, Op: elem.Sum, Ranks: 2, Size: 8}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Task){
		"kind":      func(k *Task) { k.Kind = plan.Barrier },
		"no ranks":  func(k *Task) { k.Ranks = 0 },
		"ranks":     func(k *Task) { k.Ranks = plan.MaxRanks + 1 },
		"type":      func(k *Task) { k.Type = 0 },
		"size":      func(k *Task) { k.Size = 7 },
		"root":      func(k *Task) { k.Root = 2 },
		"no op":     func(k *Task) { k.Op = 0 },
		"op":        func(k *Task) { k.Op = 99 },
		"combines":  func(k *Task) { k.Type = elem.Complex64 },
		"algorithm": func(k *Task) { k.Algorithm = "fastest" },
		"too large": func(k *Task) { k.Size = 1 << 63 },
	} {
		task := good
		spoil(&task)
		if err := task.Validate(); !errors.Is(err, ErrTask) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
