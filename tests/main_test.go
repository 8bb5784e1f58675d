package tests

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/keyworld"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestMain(m *testing.M) {
	first := []string{"TestScripts", "TestPythonPackage", "TestRandomOps", "TestViews", "TestTools", "TestPerfAmongStrangers"}
	mnt.Main(m, first, map[string]func(){keyworld.RankName: keyworld.Rank, silentName: serveSilent, askerName: ask, bareName: bare})
}
