package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/topology"
)

const fourCards = `{"version":"1.0","devices":[{"id":"sim0","kind":"accelerator"},{"id":"sim1","kind":"accelerator"},
 {"id":"sim2","kind":"accelerator"},{"id":"sim3","kind":"accelerator"},{"id":"hub","kind":"switch"}],"links":[
 {"a":"sim0","b":"sim2","class":"peer"},{"a":"sim1","b":"sim3","class":"peer"},
 {"a":"sim0","b":"hub","class":"pcie"},{"a":"sim1","b":"hub","class":"pcie"},{"a":"sim2","b":"hub","class":"pcie"},{"a":"sim3","b":"hub","class":"pcie"}]}`

// daemonWith has nothing but its options.
func daemonWith(o config.Options) *Daemon {
	return &Daemon{
		opts: Options{Settings: &config.Settings{Options: o}}, log: zap.NewNop(), families: devices.NewRegistry(),
	}
}

func TestRingOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "four.json")
	if err := os.WriteFile(file, []byte(fourCards), 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemonWith(config.Options{Topology: file, NUMA: "off"})
	if err := d.readTopology(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	order, hash := d.ring([]topology.ID{"sim0", "sim1", "sim2", "sim3"})
	if !slices.Equal(order, []plan.Rank{0, 1, 3, 2}) && !slices.Equal(order, []plan.Rank{0, 2, 1, 3}) && !slices.Equal(order, []plan.Rank{0, 2, 3, 1}) || len(hash) != 32 {
		t.Errorf("ring %v, hash %q", order, hash)
	}
	// A device that the file does not have leaves the ranks in their order.
	if order, _ = d.ring([]topology.ID{"sim0", "host"}); order != nil {
		t.Errorf("ring %v", order)
	}
	d = daemonWith(config.Options{Topology: file + ".none"})
	if err := d.readTopology(t.Context(), nil); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestPairsAreAskedOfTheFamilies(t *testing.T) {
	infos := []devices.Info{{Name: "fake0", Family: "fake", Ordinal: 0}, {Name: "fake3", Family: "fake", Ordinal: 3}, {Name: "sim0", Family: "sim"}}
	pairs, problems := Pairs(t.Context(), devices.NewRegistry(fakeFamily{}), infos)
	if want := []topology.Pair{{A: "fake0", B: "fake3", Rank: 2}}; !slices.Equal(pairs, want) || problems != nil {
		t.Errorf("%v, %v; want %v", pairs, problems, want)
	}
}
