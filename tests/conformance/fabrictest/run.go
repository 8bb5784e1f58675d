package fabrictest

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for name, fn := range map[string]func(t *testing.T, open Open){
		"Facts":         testFacts,
		"Exchange":      testExchange,
		"Sizes":         testSizes,
		"Wakes":         testWakes,
		"Context":       testContext,
		"Interrupt":     testInterrupt,
		"Allocations":   testAllocations,
		"Signals":       testSignals,
		"Share":         testShare,
		"Unmapped":      testUnmapped,
		"Closed":        testClosed,
		"Cut":           testCut,
		"Reform":        testReform,
		"Reforming":     testReforming,
		"Missing":       testMissing,
		"Killed":        testKilled,
		"Duplicate":     testDuplicate,
		"DuplicateEnds": testDuplicateEnds,
		"DuplicateLate": testDuplicateLate,
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			fn(t, open)
		})
	}
}
