package comm_test

import (
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
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

// only limits ranks to one transport.
func only(tr comm.Transport) func(testing.TB, *comm.Options) {
	return func(_ testing.TB, o *comm.Options) { o.Transports = []comm.Transport{tr} }
}

func TestConformanceSHM(t *testing.T) {
	commtest.Run(t, commtest.Way{Address: socket, Transport: comm.SHM})
}

func TestConformanceTCP(t *testing.T) { commtest.Run(t, commtest.Way{Address: loopback}) }

func TestConformanceUnix(t *testing.T) {
	commtest.Run(t, commtest.Way{Address: socket, Transport: comm.TCP, Options: only(comm.TCP)})
}

func TestConformanceChannels(t *testing.T) {
	commtest.Run(t, commtest.Way{Address: socket, Options: func(_ testing.TB, o *comm.Options) {
		o.Channels, o.Chunk, o.InFlight, o.Transports = 4, 64<<10, 3, []comm.Transport{comm.TCP}
	}})
}

func TestConformanceUCX(t *testing.T) { conformanceUCX(t, "") }

func TestConformanceUCXPosix(t *testing.T) { conformanceUCX(t, "posix,self") }

// conformanceUCX runs the list over UCX, with the given transports of it.
func conformanceUCX(t *testing.T, transports string) {
	t.Helper()
	kit.Require(t, "ucx")
	commtest.Run(t, commtest.Way{Beside: true, Allocates: true, Transport: comm.UCX, Address: socket, Options: func(_ testing.TB, o *comm.Options) {
		o.Transports, o.UCX.Transports = []comm.Transport{comm.UCX}, transports
	}})
}

func TestOptions(t *testing.T) {
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := engine.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	good := comm.Options{Secret: make([]byte, 16), Engine: engine}
	for name, change := range map[string]func(o *comm.Options){
		"no engine":         func(o *comm.Options) { o.Engine = nil },
		"no secret":         func(o *comm.Options) { o.Secret = nil },
		"many channels":     func(o *comm.Options) { o.Channels = 17 },
		"negative channels": func(o *comm.Options) { o.Channels = -1 },
		"small chunk":       func(o *comm.Options) { o.Chunk = 1 },
		"much in flight":    func(o *comm.Options) { o.InFlight = 257 },
		"negative timeout":  func(o *comm.Options) { o.Timeout = -1 },
	} {
		o := good
		change(&o)
		if _, err = comm.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	c, err := comm.New(good)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err = c.Close(); err != nil {
			t.Error(err)
		}
	}
}
