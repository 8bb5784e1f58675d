package domain_test

import (
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/conformance/domaintest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

func loopback(testing.TB) control.Address {
	return control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
}

func socket(t testing.TB) control.Address {
	t.Helper()
	return control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
}

// only restricts ranks to one transport.
func only(tr comm.Transport) func(testing.TB, *comm.Options) {
	return func(_ testing.TB, o *comm.Options) { o.Transports = []comm.Transport{tr} }
}

func TestConformanceSHM(t *testing.T) {
	domaintest.Run(t, commtest.Way{Address: socket, Options: only(comm.SHM)})
}

func TestConformanceTCP(t *testing.T) {
	domaintest.Run(t, commtest.Way{Address: loopback, Options: only(comm.TCP)})
}

func TestConformanceUnix(t *testing.T) {
	domaintest.Run(t, commtest.Way{Address: socket, Options: only(comm.TCP)})
}

func TestConformanceTLS(t *testing.T) {
	certificates := commtest.TLS(t)
	domaintest.Run(t, commtest.Way{Address: loopback, Options: func(t testing.TB, o *comm.Options) {
		t.Helper()
		certificates(t, o)
		o.Channels = 2
	}})
}

func TestConformanceUCX(t *testing.T) {
	kit.Require(t, "ucx")
	domaintest.Run(t, commtest.Way{Address: socket, Options: only(comm.UCX)})
}
