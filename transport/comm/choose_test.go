package comm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// ranked is a rank with some transports, and its log.
func ranked(t *testing.T, rank wire.Rank, may []comm.Transport) (*comm.Communicator, *observer.ObservedLogs) {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	c, err := comm.New(comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e, Transports: may, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	return c, logs
}

// TestChoice connects ranks with different transports: both use the fastest
// common one, and give the reason why no faster one is used.
func TestChoice(t *testing.T) {
	shm, tcp := comm.SHM, comm.TCP
	for name, tc := range map[string]struct {
		at      control.Address
		a, b    []comm.Transport
		want    comm.Transport
		because []string
	}{
		"all on one host": {at: socket(t), want: shm, because: []string{"rdma: "}},
		"all by TCP": {
			at: loopback(t), want: tcp, because: []string{"rdma: ", "shm: the ranks are connected by tcp", "ucx: "},
		},
		"without the slow ones": {at: socket(t), a: []comm.Transport{shm}, want: shm, because: []string{"rdma: rank 0 is configured not to use it"}},
		"who connects has less": {
			at: socket(t), a: []comm.Transport{tcp}, b: []comm.Transport{tcp, shm}, want: tcp,
			because: []string{"rdma: rank 1 is configured not to use it", "shm: rank 0 is configured not to use it", "ucx: rank 1 is configured not to use it"},
		},
		"who listens has less": {
			at: socket(t), a: []comm.Transport{tcp, shm}, b: []comm.Transport{tcp}, want: tcp,
			because: []string{"rdma: rank 1 is configured not to use it", "shm: rank 1 is configured not to use it", "ucx: rank 1 is configured not to use it"},
		},
		"nothing in common": {
			at: socket(t), a: []comm.Transport{shm}, b: []comm.Transport{tcp}, because: []string{"shm: rank 1 is configured not to use it", "tcp: rank 0 is configured not to use it"},
		},
		"not by this network": {
			at: loopback(t), a: []comm.Transport{shm}, because: []string{"shm: the ranks are connected by tcp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			a, logA := ranked(t, 0, tc.a)
			b, logB := ranked(t, 1, tc.b)
			at, err := b.Listen(t.Context(), tc.at)
			if err != nil {
				t.Fatal(err)
			}
			err = a.Connect(within(t), 1, at)
			if tc.want == "" {
				refused(t, err, tc.because)
				kit.Eventually(t, patience, func() bool {
					return len(b.Peers()) == 0 && logB.FilterMessage("no session with peer: no common transport").Len() == 1
				})
				return
			}
			if err == nil {
				err = b.Await(within(t), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			// A session is reported when it is live.
			kit.Eventually(t, patience, func() bool {
				return logA.FilterMessage("peer connected").Len() > 0 && logB.FilterMessage("peer connected").Len() > 0
			})
			chose(t, a, logA, tc.want, tc.because)
			chose(t, b, logB, tc.want, tc.because)
		})
	}
}

// refused requires an error that gives the reason why there is no transport.
func refused(t *testing.T, err error, because []string) {
	t.Helper()
	if !errors.Is(err, comm.ErrNoTransport) {
		t.Errorf("connected: %v", err)
		return
	}
	for _, why := range because {
		if !strings.Contains(err.Error(), why) {
			t.Errorf("%v does not say %q", err, why)
		}
	}
}

// chose requires that a rank has chosen a transport, and has reported it once.
func chose(t *testing.T, c *comm.Communicator, logs *observer.ObservedLogs, want comm.Transport, because []string) {
	t.Helper()
	p := c.Peers()
	if len(p) != 1 || p[0].Transport != want || !slices.EqualFunc(p[0].Because, because, strings.HasPrefix) {
		t.Errorf("%s: %+v, want %s because %q", c.Rank(), p, want, because)
	}
	entries := logs.FilterMessage("peer connected").All()
	if len(entries) != 1 || entries[0].ContextMap()["transport"] != string(want) {
		t.Errorf("%s has logged %+v", c.Rank(), entries)
	}
}

func TestUnknownTransport(t *testing.T) {
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if _, err := comm.New(comm.Options{Secret: kit.Bytes(1, 0, 32), Engine: e, Transports: []comm.Transport{"pigeon"}}); err == nil {
		t.Error("taken")
	}
}
