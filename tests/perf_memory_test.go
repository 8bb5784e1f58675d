package tests

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestPerfMemory measures between every two kinds of memory of this machine, specified as for
// a mount; the CUDA cards are stand-ins.
func TestPerfMemory(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, fmt.Sprintf("memory=%d", cardSize))
	ends := hereEnds(t)
	specs, names := []string{"host", "sim:0,size=16MiB", "cuda:0"}, []devices.Name{"host", "sim0", "cuda0"}
	if kit.Missing("opencl") == nil {
		specs, names = append(specs, "opencl:0,size=16MiB"), append(names, "ocl0")
	}
	var serve, run []string
	for i := range specs {
		serve = append(serve, "--memory", specs[i])
		run = append(run, "--memory", specs[i], "--peer-memory", string(names[i]))
	}
	_, at := ends.listen(t, []string{"127.0.0.1:0", "unix:" + filepath.Join(filepath.Dir(ends.secret), "s")}, serve...)
	r := ends.measures(t, slices.Concat(run, little(), at)...)
	measured := map[string]int{}
	for _, row := range r.Rows {
		measured[fmt.Sprint(row.Operation, " ", row.Memory, " ", row.PeerMemory)]++
	}
	for _, here := range names {
		for _, there := range names {
			for operation, want := range map[string]int{
				// For each address three sizes, and a latency of all but recv.
				perf.OpPut: 8, perf.OpGet: 8, perf.OpSend: 8, perf.OpRecv: 6,
			} {
				if n := measured[fmt.Sprint(operation, " ", here, " ", there)]; n != want {
					t.Errorf("%s between %s and %s has %d rows", operation, here, there, n)
				}
			}
		}
	}
	p := ends.start(t, ends.run, "run", append(little(), "--peer-memory", "cuda1", at[0])...)
	if code := p.code(); code != 1 || !strings.Contains(p.said.String(), `memory "cuda1" is not served here; use one of host`) {
		t.Errorf("memory that is not served: exit code %d, %s", code, p.said.String())
	}
}
