package domaintest

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Run runs the suite.
func Run(t *testing.T, w commtest.Way) {
	for name, fn := range map[string]func(t *testing.T, w commtest.Way){
		"Sizes":            testSizes,
		"Tensor":           testTensor,
		"DeviceMemory":     testDeviceMemory,
		"Order":            testOrder,
		"Isolation":        testIsolation,
		"Mismatch":         testMismatch,
		"Ourselves":        testOurselves,
		"NotMember":        testNotMember,
		"BadViews":         testBadViews,
		"Async":            testAsync,
		"Multi":            testMulti,
		"Group":            testGroup,
		"Pipeline":         testPipeline,
		"Random":           testRandom,
		"Established":      testEstablished,
		"NoWorkOnDataPath": testNoWorkOnDataPath,
		"MissingRank":      testMissingRank,
		"Lists":            testLists,
		"Names":            testNames,
		"Timeout":          testTimeout,
		"Withdrawn":        testWithdrawn,
		"Cycle":            testCycle,
		"Destroy":          testDestroy,
		"PeerGone":         testPeerGone,
		"StalledPair":      testStalledPair,
	} {
		t.Run(name, func(t *testing.T) {
			// A rank mounts nothing; other tests of the same run create mounts of their own
			// meanwhile, below directories of this name.
			kit.Check(t, kit.Ignore("/hmcfs-"))
			fn(t, w)
		})
	}
}
