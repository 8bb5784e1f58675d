package etcd_test

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/tests/conformance/coordtest"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
)

// open returns a client of a server.
func open(t *testing.T, e *etcdkit.Server, change func(*etcd.Options)) *etcd.Service {
	t.Helper()
	s, err := etcd.Open(t.Context(), options(t, e, change))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func options(t *testing.T, e *etcdkit.Server, change func(*etcd.Options)) etcd.Options {
	t.Helper()
	config, err := e.TLS()
	if err != nil {
		t.Fatal(err)
	}
	o := etcd.Options{Endpoints: e.Endpoints(), Prefix: "/hmcfs/test/", TLS: config}
	if change != nil {
		change(&o)
	}
	return o
}

func TestConformance(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	number := 0
	coordtest.Run(t, func(t *testing.T) func() coord.Service {
		number++
		prefix := fmt.Sprintf("/hmcfs/test%d/", number)
		return func() coord.Service { return open(t, e, func(o *etcd.Options) { o.Prefix = prefix }) }
	})
}
