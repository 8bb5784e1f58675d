package cluster

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestMain(m *testing.M) {
	mnt.Main(m, []string{"TestPeerGone", "TestKeyWhileEtcdIsAway", "TestEtcdAway", "TestStorm", "TestCommands"})
}
