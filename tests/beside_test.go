package tests

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/randomops"
)

var (
	besideRounds = flag.Int("beside-rounds", 4, "how many files are changed through maps and by calls at once on each configuration")
	besidePages  = flag.Int("beside-pages", 64, "how many pages each of these files has")
)

// TestBesideMaps changes files through shared maps and by calls at the same time: the bytes of
// a page are those that were written, as on tmpfs.
func TestBesideMaps(t *testing.T) {
	kit.Check(t)
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("files: -seed %d -beside-rounds %d -beside-pages %d", seed, *besideRounds, *besidePages)
	run := func(t *testing.T, dir string) {
		t.Helper()
		for i := range *besideRounds {
			b := randomops.Beside{Dir: dir, Pages: *besidePages, Seed: seed + uint64(i)}
			if err := b.Run(); err != nil {
				t.Errorf("seed %d: %v", b.Seed, err)
			}
		}
	}
	t.Run("tmpfs", func(t *testing.T) { run(t, mnt.Tmpfs(t, "64m")) })
	for _, c := range opsConfigs() {
		switch c.name {
		case "sim", "mapped", "opencl", "host", "host-daemon":
		default:
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			kit.Require(t, c.needs...)
			m := mnt.Mount(t, mnt.Options{Devices: c.devices, Extra: c.extra})
			run(t, m.Path(c.a))
		})
	}
}
