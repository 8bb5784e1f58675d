package domain_test

import (
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/transporttest/commtest"
	"github.com/hmcfs/hmcfs/transport/transporttest/domaintest"
)

func loopback(testing.TB) control.Address {
	return control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
}

func socket(t testing.TB) control.Address {
	t.Helper()
	return control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
}

func TestConformance(t *testing.T) {
	t.Run("TCP", func(t *testing.T) { domaintest.Run(t, commtest.Way{Address: loopback}) })
	t.Run("TLS", func(t *testing.T) {
		domaintest.Run(t, commtest.Way{Address: loopback, Options: commtest.TLS(t)})
	})
	t.Run("Unix", func(t *testing.T) {
		domaintest.Run(t, commtest.Way{Address: socket, Options: func(_ testing.TB, o *comm.Options) { o.Channels = 2 }})
	})
}
