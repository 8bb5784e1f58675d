package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/lab"
	"github.com/hmcfs/hmcfs/tests/sandbox"
)

// run is the state of one attack.
type run struct {
	lab  *lab.Lab
	mode string
	out  io.Writer
	// dir is a directory outside the mounts to which programs write.
	dir string
	// logs is the directory of the logs, which remains after the run.
	logs  string
	seed  uint64
	slack time.Duration
	start time.Time

	keys *keyring
	pubs *judge.Publications
	hall *hall
	// shelves and collectives are checked at the end.
	shelves     []*shelf
	collectives *collectives

	mu sync.Mutex
	// +checklocks:mu
	violations []judge.Violation
	// +checklocks:mu
	counts map[string]*count
	// +checklocks:mu
	faults map[string]int
	// +checklocks:mu
	numbers int
}

// count counts the operations that succeeded and those that failed.
type count struct {
	ok, failed int
	longest    time.Duration
}

// attack runs one mode and prints the result. It returns sandbox.ErrFailed if a property
// does not hold.
func attack(ctx context.Context, s settings, mode, logs, dir string) (err error) {
	logs = filepath.Join(logs, mode)
	r := &run{
		mode: mode, out: s.out, dir: filepath.Join(dir, "out"), logs: logs, seed: s.seed, slack: s.slack, start: time.Now(),
		counts: map[string]*count{}, faults: map[string]int{}, keys: newKeyring(), hall: newHall(), pubs: &judge.Publications{}, collectives: &collectives{},
	}
	for _, d := range []string{r.dir, logs} {
		if err = os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.out, "seed %d, %s, %v; impaired links: frames pass a relay in this program, in place of netem\n", s.seed, mode, minutes(s.minutes))
	r.lab, err = lab.New(ctx, lab.Options{Program: s.program, Dir: dir, Logs: logs, Nodes: 3, Etcd: mode == "etcd"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	if problem := r.converge(ctx); problem != nil {
		return fmt.Errorf("before any fault: %w", problem)
	}
	if err = r.mountFull(); err != nil {
		return err
	}
	r.attack(ctx, minutes(s.minutes))
	if ctx.Err() != nil {
		r.summary()
		return errInterrupted
	}
	r.settle(ctx)
	return r.report(ctx)
}

func minutes(m float64) time.Duration { return time.Duration(m * float64(time.Minute)) }

// attack runs all workers, and injects faults, for the given time.
func (r *run) attack(ctx context.Context, during time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	var working sync.WaitGroup
	worker := 0
	work := func(step func(context.Context, *hand)) {
		worker++
		w := &hand{run: r, random: r.chance(uint64(worker))}
		working.Go(func() {
			for ctx.Err() == nil {
				step(context.WithoutCancel(ctx), w)
				w.pause(ctx)
			}
		})
	}
	for _, n := range r.lab.Nodes {
		for range 2 {
			work(func(ctx context.Context, w *hand) { r.keyStep(ctx, w, n) })
			work(func(ctx context.Context, w *hand) { r.receiveStep(ctx, w, n) })
		}
		work(func(ctx context.Context, w *hand) { r.publishStep(ctx, w, n) })
		own := newShelf(r, n)
		r.shelves = append(r.shelves, own)
		work(func(ctx context.Context, w *hand) { own.step(w) })
	}
	work(r.collectiveStep)
	r.disturb(ctx, r.chance(0))
	working.Wait()
}

// chance returns the source of random numbers of one worker.
func (r *run) chance(worker uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, worker)) //nolint:gosec // the seed has it done again
}

// hand is the state of one worker.
type hand struct {
	run    *run
	random *rand.Rand
}

// longestPause bounds the pause of a worker between two operations.
const longestPause = 200 * time.Millisecond

func (w *hand) pause(ctx context.Context) {
	timer := time.NewTimer(time.Duration(w.random.Int64N(int64(longestPause))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// now returns the time since the start of the run.
func (r *run) now() time.Duration { return time.Since(r.start) }

// number returns a number, from 1 on, that is unique within the run.
func (r *run) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers++
	return r.numbers
}

// violate records violations and prints them.
func (r *run) violate(all ...judge.Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range all {
		fmt.Fprintf(r.out, "%8.3f s  VIOLATION %v\n", r.now().Seconds(), v)
	}
	r.violations = append(r.violations, all...)
}

// did counts an operation and checks its duration.
func (r *run) did(kind, what string, began time.Duration, bound time.Duration, err error) {
	took := r.now() - began
	r.mu.Lock()
	c := r.counts[kind]
	if c == nil {
		c = &count{}
		r.counts[kind] = c
	}
	c.longest = max(c.longest, took)
	if err == nil {
		c.ok++
	} else {
		c.failed++
	}
	r.mu.Unlock()
	if took > bound+r.slack {
		r.violate(judge.Violation{Property: "wait", Text: fmt.Sprintf("%s %s, begun at %.3f s, took %v; it is to end within %v and %v of slack: %v",
			kind, what, began.Seconds(), took, bound, r.slack, err)})
	}
}

// report checks the histories, writes them to files, and prints the summary.
func (r *run) report(ctx context.Context) error {
	if ctx.Err() != nil {
		r.summary()
		return errInterrupted
	}
	bad, counted := r.pubs.Check()
	r.violate(bad...)
	forked, undecided := r.keys.history.Check()
	r.violate(forked...)
	for name, history := range map[string]func(io.Writer) error{"keys.json": r.keys.history.Write, "publications.json": r.pubs.Write} {
		if err := writeFile(filepath.Join(r.logs, name), history); err != nil {
			return err
		}
	}
	r.summary()
	fmt.Fprintf(r.out, "  publications: %d begun, %d acknowledged, %d received, %d lost, %d twice, %d wrong\n",
		counted.Offered, counted.Acknowledged, counted.Received, counted.Lost, counted.Twice, counted.Wrong)
	fmt.Fprintf(r.out, "  keys: a history of %d operations on %d keys, %d not one register, %d undecided\n",
		r.keys.history.Len(), r.keys.made(), len(forked), undecided)
	fmt.Fprintf(r.out, "  collectives: %d judged\n", r.collectives.judged)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) == 0 {
		fmt.Fprintln(r.out, "  no violation")
		return nil
	}
	byKind := map[string]int{}
	for _, v := range r.violations {
		byKind[v.Property]++
		fmt.Fprintf(r.out, "  %.1000s\n", v)
	}
	fmt.Fprintf(r.out, "  VIOLATIONS: %v\n", byKind)
	return sandbox.ErrFailed
}

// summary prints the counts of operations and faults.
func (r *run) summary() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "\n%s, seed %d\n", r.mode, r.seed)
	for _, kind := range slices.Sorted(maps.Keys(r.counts)) {
		c := r.counts[kind]
		fmt.Fprintf(r.out, "  %-52s %6d ok %6d failed, the longest %.1f s\n", kind, c.ok, c.failed, c.longest.Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(r.out, "  fault: %-45s %6d\n", name, r.faults[name])
	}
}

func writeFile(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}
