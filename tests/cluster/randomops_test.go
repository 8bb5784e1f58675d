package cluster

import (
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/randomops"
)

var (
	randomSeed = flag.Uint64("seed", 0, "the first seed of the random programs; 0 is another one each time")
	randomRuns = flag.Int("programs", 0, "how many random programs to run on each configuration; 0 is a few")
	replayFile = flag.String("replay", "", "a program to run instead of random ones")
)

// TestRandomOps runs random programs on tmpfs, and through node a on the devices of node b.
func TestRandomOps(t *testing.T) {
	specs, names := devicesOf(t)
	_, nodes := newNodes(t, worldOptions{machines: 2, devices: specs, flags: slowNode})
	tmpfs := mnt.Tmpfs(t, "512m")
	for _, p := range randomPrograms(t) {
		want := runIn(t, tmpfs, tmpfs, p)
		for _, pair := range [][2]string{{"host", "host"}, {"sim0", "sim0"}, {"host", "sim0"}, {"sim0", names[len(names)-1]}} {
			a, b := nodes[0].at("b", pair[0]), nodes[0].at("b", pair[1])
			d := randomops.Compare(p, want, runIn(t, a, b, p))
			if d == nil {
				continue
			}
			t.Errorf("on b's %s and %s, by a:\n%v", pair[0], pair[1], d)
			reportSmall(t, p, func(q randomops.Program) bool {
				return randomops.Compare(q, runIn(t, tmpfs, tmpfs, q), runIn(t, a, b, q)) != nil
			})
			return
		}
	}
}

// randomPrograms returns the program that was selected, or some random ones.
func randomPrograms(t *testing.T) []randomops.Program {
	t.Helper()
	if *replayFile != "" {
		text, err := os.ReadFile(*replayFile)
		must(t, err)
		p, err := randomops.Parse(string(text))
		must(t, err)
		return []randomops.Program{p}
	}
	runs, length, seed := kit.Rounds(2, 2, 12), kit.Rounds(150, 200, 250), *randomSeed
	if *randomRuns > 0 {
		runs = *randomRuns
	}
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("random programs: -seed %d -programs %d", seed, runs)
	var out []randomops.Program
	for i := range uint64(runs) {
		out = append(out, randomops.Generate(seed+i, length))
	}
	return out
}

// runIn runs a program in empty directories below a and b, and removes the files that it
// leaves.
func runIn(t *testing.T, a, b string, p randomops.Program) []randomops.Step {
	t.Helper()
	target := randomops.Target{A: filepath.Join(a, "a"), B: filepath.Join(b, "b")}
	for _, dir := range []string{target.A, target.B} {
		must(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)))
	}
	steps := randomops.Run(p, target)
	if err := errors.Join(os.RemoveAll(target.A), os.RemoveAll(target.B)); err != nil {
		t.Errorf("remove what a program left: %v", err)
	}
	return steps
}

// reportSmall minimizes a program that has failed, and reports it.
func reportSmall(t *testing.T, p randomops.Program, fails func(randomops.Program) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	small := randomops.Shrink(p, 1000, func(q randomops.Program) bool { return time.Now().Before(deadline) && fails(q) })
	file := filepath.Join(t.ArtifactDir(), "small.ops")
	text := small.String()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Logf("keep the program: %v", err)
	}
	t.Errorf("as small as it gets; run it with -replay FILE (with -artifacts it is in %s):\n%s", file, text)
}
