package tests

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/randomops"
)

var (
	randomSeed = flag.Uint64("seed", 0, "the first seed of the random programs; 0 is another one each time")
	randomRuns = flag.Int("programs", 0, "how many random programs to run on each configuration; 0 is a few")
	replayFile = flag.String("replay", "", "a program to run instead of random ones: go test ./tests -run RandomOps -replay FILE")
)

// opsConfig is one way to mount. The results must be the same for all.
type opsConfig struct {
	name string
	// a and b are the directories of the mount in which programs work.
	a, b    string
	devices []string
	extra   []string
	needs   []string
	// crash is true if everything in a and b survives the daemon's death.
	crash bool
}

func opsConfigs() []opsConfig {
	const host, sim0, sim1 = "host,size=96MiB", "sim:0,size=128MiB", "sim:1,size=128MiB"
	return []opsConfig{
		{name: "sim", a: "sim0", b: "sim1", devices: []string{sim0, sim1}},
		{name: "mapped", a: "sim2", b: "sim0", devices: []string{sim0, "sim:2,size=128MiB,mapped=true"}},
		{name: "cuda", a: "cuda0", b: "cuda1", devices: []string{"cuda:0,size=128MiB", "cuda:1,size=128MiB"}},
		{name: "cuda-host", a: "host", b: "cuda0", devices: []string{host, "cuda:0,size=128MiB"}},
		{name: "opencl", a: "ocl0", b: "ocl0", devices: []string{"opencl:0,size=128MiB"}, needs: []string{"opencl"}},
		{name: "opencl-sim", a: "sim0", b: "ocl0", devices: []string{sim0, "opencl:0,size=128MiB"}, needs: []string{"opencl"}},
		{name: "host", a: "host", b: "host", devices: []string{host}, needs: []string{"passthrough"}, crash: true},
		{name: "host-daemon", a: "host", b: "host", devices: []string{host}, extra: []string{"--passthrough", "off"}, crash: true},
		{name: "host-sim", a: "host", b: "sim0", devices: []string{host, sim0}},
		{
			name: "small-requests", a: "sim0", b: "host", devices: []string{host, sim0},
			extra: []string{"--chunk-size", "64KiB", "--read-ahead", "0", "--max-write", "128KiB", "--passthrough", "off"},
		},
	}
}

// TestRandomOps runs random programs on tmpfs and on mounts.
func TestRandomOps(t *testing.T) {
	kit.Check(t)
	useStandInCards(t)
	programs := opsPrograms(t)
	tmpfs := mnt.Tmpfs(t, "512m")
	want := make([][]randomops.Step, len(programs))
	for i, p := range programs {
		runBelow(t, tmpfs, tmpfs, func(target randomops.Target) { want[i] = randomops.Run(p.ops, target) })
	}
	for _, c := range opsConfigs() {
		t.Run(c.name, func(t *testing.T) {
			kit.Require(t, c.needs...)
			run := &opsRun{t: t, config: c, tmpfs: tmpfs}
			run.mount = mnt.Mount(t, mnt.Options{Devices: c.devices, Extra: c.extra})
			for i, p := range programs {
				if d := randomops.Compare(p.ops, want[i], run.on(p.ops)); d != nil {
					run.report(p, d)
					return
				}
			}
		})
	}
}

// namedProgram is a program with its origin.
type namedProgram struct {
	name string
	ops  randomops.Program
}

// opsPrograms returns the programs of the selected file or, by default, those that have failed
// before and some random ones.
func opsPrograms(t *testing.T) []namedProgram {
	t.Helper()
	if *replayFile != "" {
		return []namedProgram{readProgram(t, *replayFile)}
	}
	files, err := filepath.Glob("testdata/regress/*.ops")
	if err != nil {
		t.Fatal(err)
	}
	var out []namedProgram
	for _, file := range files {
		out = append(out, readProgram(t, file))
	}
	runs, length := kit.Rounds(3, 3, 24), kit.Rounds(150, 150, 250)
	if *randomRuns > 0 {
		runs = *randomRuns
	}
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("random programs: -seed %d -programs %d", seed, runs)
	for i := range uint64(runs) {
		out = append(out, namedProgram{
			name: fmt.Sprintf("seed %d", seed+i), ops: randomops.Generate(seed+i, length),
		})
	}
	return out
}

func readProgram(t *testing.T, file string) namedProgram {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := randomops.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return namedProgram{name: file, ops: p}
}

// runBelow creates empty directories below a and b, calls run with them, and removes them.
func runBelow(t *testing.T, a, b string, run func(randomops.Target)) {
	t.Helper()
	var target randomops.Target
	for _, d := range []struct {
		parent, name string
		to           *string
	}{{a, "a", &target.A}, {b, "b", &target.B}} {
		*d.to = filepath.Join(d.parent, d.name)
		if err := errors.Join(os.RemoveAll(*d.to), os.Mkdir(*d.to, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	run(target)
	if err := errors.Join(os.RemoveAll(target.A), os.RemoveAll(target.B)); err != nil {
		t.Errorf("remove what a program left: %v", err)
	}
}

// opsRun runs programs on one configuration.
type opsRun struct {
	t      *testing.T
	config opsConfig
	mount  *mnt.M
	tmpfs  string
}

// opsPatience is the time after which the daemon of a program counts as hanging, and is told
// to dump its goroutines.
const opsPatience = 2 * time.Minute

// on runs a program on the mount.
func (r *opsRun) on(p randomops.Program) (steps []randomops.Step) {
	r.t.Helper()
	r.revive()
	pid := r.mount.PID()
	watch := time.AfterFunc(opsPatience, func() { _ = unix.Kill(pid, unix.SIGQUIT) })
	defer watch.Stop()
	runBelow(r.t, r.mount.Path(r.config.a), r.mount.Path(r.config.b), func(target randomops.Target) {
		if r.config.crash {
			target.Crash = func() error {
				r.mount.Kill()
				r.mount.Start()
				return nil
			}
		}
		steps = randomops.Run(p, target)
		r.revive()
	})
	return steps
}

// revive mounts again after a program has ended the daemon.
func (r *opsRun) revive() {
	r.t.Helper()
	if _, err := os.Stat(r.mount.Path(".hmcfs", "version")); err != nil {
		r.t.Errorf("%s: the daemon has died: %v", r.config.name, err)
		r.mount.Kill()
		r.mount.Start()
	}
}

// report minimizes a program that has failed, and reports it.
func (r *opsRun) report(p namedProgram, d *randomops.Diff) {
	r.t.Helper()
	r.t.Errorf("%s differs from tmpfs after %s:\n%v", r.config.name, p.name, d)
	last, deadline := d, time.Now().Add(time.Minute)
	small := randomops.Shrink(p.ops, 2000, func(q randomops.Program) bool {
		if time.Now().After(deadline) {
			return false
		}
		var want []randomops.Step
		runBelow(r.t, r.tmpfs, r.tmpfs, func(target randomops.Target) { want = randomops.Run(q, target) })
		d := randomops.Compare(q, want, r.on(q))
		if d != nil {
			last = d
		}
		return d != nil
	})
	file := filepath.Join(r.t.ArtifactDir(), "small.ops")
	text := fmt.Sprintf("# on %s: %s\n%s", r.config.name, strings.ReplaceAll(last.String(), "\n", "\n# "), small)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Logf("keep the program: %v", err)
	}
	r.t.Errorf("as small as it gets; keep it in testdata/regress, run it with -replay FILE "+
		"(with -artifacts it is in %s):\n%s", file, text)
}
