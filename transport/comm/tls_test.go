package comm_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/transport/comm"
)

func TestConformanceTLS(t *testing.T) {
	certificates := commtest.TLS(t)
	commtest.Run(t, commtest.Way{Allocates: true, Address: loopback, Options: func(t testing.TB, o *comm.Options) {
		t.Helper()
		certificates(t, o)
		o.Channels = 2
	}})
}
