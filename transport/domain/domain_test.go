package domain

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const patience = 60 * time.Second

// node is one rank of a job in this process.
type node struct {
	comm    *comm.Communicator
	domains *Domains
}

// job makes n ranks that know each other's addresses.
func job(t testing.TB, n int, tweak func(o *Options)) []*node {
	t.Helper()
	book := map[wire.Rank]control.Address{}
	var nodes []*node
	for i := range wire.Rank(n) {
		e, err := transport.New(transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := comm.New(comm.Options{Rank: i, Secret: kit.Bytes(1, 0, 32), Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		o := Options{AddressBook: book}
		if tweak != nil {
			tweak(&o)
		}
		d, err := New(c, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cerr := errors.Join(d.Close(), c.Close(), e.Close()); cerr != nil {
				t.Error(cerr)
			}
			if live := c.Table().Stats().Live; live != 0 {
				t.Errorf("%s: %d registrations are left", i, live)
			}
		})
		at := control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
		if _, bench := t.(*testing.B); bench {
			at = control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
		}
		if book[i], err = c.Listen(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, &node{c, d})
	}
	return nodes
}

func within(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// form makes a domain on all ranks of the list.
func form(t testing.TB, nodes []*node, name string, ranks ...wire.Rank) []*Comm {
	t.Helper()
	out := make([]*Comm, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			var err error
			if out[i], err = nodes[r].domains.NewComm(within(t), name, ranks); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

func (n *node) host(t testing.TB, size devices.Size) *region.Buffer {
	t.Helper()
	b, err := n.comm.Table().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

func view(t testing.TB, b *region.Buffer, off, n int) View {
	t.Helper()
	v, err := NewView(b, devices.Offset(off), elem.Uint8, uint64(n))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSmoke(t *testing.T) {
	kit.Check(t)
	nodes := job(t, 2, nil)
	c := form(t, nodes, "d", 1, 0)
	for _, n := range []int{0, 1, 4095, 4096, 65536, 65537, 1<<20 + 1} {
		src, dst := nodes[1].host(t, devices.Size(n+10)), nodes[0].host(t, devices.Size(n+10))
		transporttest.Fill(t, src, 1)
		var all sync.WaitGroup
		all.Go(func() {
			if err := c[0].Send(within(t), view(t, src, 3, n), 1, 5); err != nil {
				t.Error(err)
			}
		})
		if err := c[1].Recv(within(t), view(t, dst, 5, n), 0, 5); err != nil {
			t.Error(n, err)
		}
		all.Wait()
		transporttest.Check(t, dst, 5, n, 1, 3)
	}
}
