package comm_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/transporttest/commtest"
)

// TestConformancePlain is TestConformanceTCP, whose sessions are encrypted by the
// secret, without that.
func TestConformancePlain(t *testing.T) {
	commtest.Run(t, commtest.Way{Address: loopback, Options: func(_ testing.TB, o *comm.Options) { o.Plain = true }})
}
