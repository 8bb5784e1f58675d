package domaintest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// testIsolation forms two domains of the same ranks, in different order, and a third one
// besides: no message crosses between them.
func testIsolation(t *testing.T, w commtest.Way) {
	job := open(t, w, 4, nil)
	first, second := job.form(t, "first", 2, 0), job.form(t, "second", 0, 2)
	if first[0].Rank() != 0 || first[1].Rank() != 1 || second[0].Rank() != 0 || first[0].Size() != 2 ||
		!slices.Equal(first[1].Ranks(), []wire.Rank{2, 0}) || first[0].Name() != "first" {
		t.Errorf("ranks %v and %v", first[0].Ranks(), second[0].Ranks())
	}
	const n = 5000
	// From rank 2 of the job to rank 0 of the job, with one tag, in both domains.
	if err := first[0].Send(within(t), filled(t, job, 2, n, 1), 1, 7); err != nil {
		t.Fatal(err)
	}
	if err := second[1].Send(within(t), filled(t, job, 2, n, 2), 0, 7); err != nil {
		t.Fatal(err)
	}
	for seed, recv := range map[uint64]func(v domain.View) error{
		2: func(v domain.View) error { return second[0].Recv(within(t), v, 1, 7) },
		1: func(v domain.View) error { return first[1].Recv(within(t), v, 0, 7) },
	} {
		v, check := empty(t, job, 0, n)
		if err := recv(v); err != nil {
			t.Fatal(err)
		}
		check(seed)
	}
	v, _ := empty(t, job, 0, n)
	if err := first[1].Recv(shortly(t), v, 0, 7); err == nil {
		t.Error("a message came twice")
	}
}

func testNotMember(t *testing.T, w commtest.Way) {
	job := open(t, w, 3, nil)
	c := job.form(t, "two", 0, 1)
	if _, err := job.nodes[2].domains.NewComm(within(t), "two", []wire.Rank{0, 1}); !errors.Is(err, domain.ErrNotMember) {
		t.Errorf("a rank that is not in the list: %v", err)
	}
	v := filled(t, job, 0, 10, 1)
	for _, peer := range []domain.Rank{-1, 2, 1 << 30} {
		if err := c[0].Send(within(t), v, peer, 1); !errors.Is(err, domain.ErrNotMember) {
			t.Errorf("send to rank %d: %v", peer, err)
		}
		if _, err := c[0].Irecv(within(t), v, peer, 1); !errors.Is(err, domain.ErrNotMember) {
			t.Errorf("receive from rank %d: %v", peer, err)
		}
		if err := c[0].Flush(within(t), peer); !errors.Is(err, domain.ErrNotMember) {
			t.Errorf("flush to rank %d: %v", peer, err)
		}
	}
}

// testMismatch posts sends and receives that don't match, with the receive first and last;
// both sides get the error, and remain usable.
func testMismatch(t *testing.T, w commtest.Way) {
	type side struct {
		typ   elem.Type
		count int
	}
	for name, tc := range map[string]struct {
		send, recv []side
		param      domain.Param
		truncated  bool
	}{
		"type":    {[]side{{elem.Float32, 100}}, []side{{elem.Int32, 100}}, domain.ParamType, false},
		"shorter": {[]side{{elem.Float32, 100}}, []side{{elem.Float32, 99}}, domain.ParamCount, true},
		"longer":  {[]side{{elem.Float32, 100}}, []side{{elem.Float32, 101}}, domain.ParamCount, false},
		"buffers": {[]side{{elem.Uint8, 1}, {elem.Uint8, 2}}, []side{{elem.Uint8, 3}}, domain.ParamBuffers, false},
		"second":  {[]side{{elem.Uint8, 1}, {elem.Uint8, 2}}, []side{{elem.Uint8, 1}, {elem.Int8, 2}}, domain.ParamType, false},
		"large":   {[]side{{elem.Uint8, 3 << 20}}, []side{{elem.Uint8, 1}}, domain.ParamCount, true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, tweak func(*domain.Options)) {
				t.Helper()
				job, c := pair(t, w, tweak)
				views := func(rank int, all []side) []domain.View {
					var out []domain.View
					for _, s := range all {
						out = append(out, typed(t, host(t, job, rank, s.count*8), 0, s.typ, s.count))
					}
					return out
				}
				from, to := views(0, tc.send), views(1, tc.recv)
				for tag := range wire.Tag(2) {
					var sent error
					together(t, 2, func(i int) error {
						if i == 0 {
							// An eager send gets the error from the flush.
							sent = errors.Join(c[0].SendMulti(within(t), from, 1, tag), c[0].Flush(within(t), 1))
							return nil
						}
						mismatched(t, c[1].RecvMulti(within(t), to, 0, tag), tc.param, tc.truncated)
						return nil
					})
					mismatched(t, sent, tc.param, tc.truncated)
				}
				move(t, c, filled(t, job, 0, 5000, 1), view(t, host(t, job, 1, 5000), 0, 5000), 0, false)
			})
		})
	}
}

// mismatched checks for a mismatch error, with both values.
func mismatched(t *testing.T, err error, param domain.Param, truncated bool) {
	t.Helper()
	var bad *domain.MismatchError
	if !errors.As(err, &bad) || !errors.Is(err, domain.ErrMismatch) {
		t.Errorf("no mismatch: %v", err)
		return
	}
	if bad.Param != param || bad.Local == bad.Remote || bad.Domain != "pair" || errors.Is(err, domain.ErrTruncated) != truncated {
		t.Errorf("%+v: %v", bad, err)
	}
	if !strings.Contains(err.Error(), param.String()) || !strings.Contains(err.Error(), bad.Peer.String()) {
		t.Errorf("the error does not say what: %v", err)
	}
}

// testOurselves sends to and receives from the rank itself.
func testOurselves(t *testing.T, w commtest.Way) {
	job := open(t, w, 1, nil)
	c := job.form(t, "alone", 0)[0]
	const n = 1 << 20
	src := filled(t, job, 0, n, 1)
	dst, check := empty(t, job, 0, n)
	if err := c.Send(within(t), src, 0, 1); !errors.Is(err, domain.ErrSelf) {
		t.Errorf("send without a receive: %v", err)
	}
	if err := c.Recv(within(t), dst, 0, 1); !errors.Is(err, domain.ErrSelf) {
		t.Errorf("receive without a send: %v", err)
	}
	if err := c.Group(within(t), func(g *domain.Group) { g.Send(src, 0, 1) }); !errors.Is(err, domain.ErrSelf) {
		t.Errorf("group without a receive: %v", err)
	}
	recv, err := c.Irecv(within(t), dst, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(c.Send(within(t), src, 0, 1), recv.Wait(within(t))); err != nil {
		t.Error(err)
	}
	check(1)
	send, err := c.Isend(within(t), filled(t, job, 0, 10, 2), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	small, check := empty(t, job, 0, 10)
	if err = errors.Join(c.Recv(within(t), small, 0, 2), send.Wait(within(t)), c.Flush(within(t), 0)); err != nil {
		t.Error(err)
	}
	check(2)
	if send, err = c.Isend(within(t), src, 0, 3); err != nil {
		t.Fatal(err)
	}
	err = c.Recv(within(t), small, 0, 3)
	if !errors.Is(err, domain.ErrTruncated) || !errors.Is(send.Wait(within(t)), domain.ErrTruncated) {
		t.Errorf("truncated: %v", err)
	}
	moves(t, job, []*domain.Comm{c, c}, device, host)
	moves(t, job, []*domain.Comm{c, c}, host, device)
	moves(t, job, []*domain.Comm{c, c}, device, device)
}

func testBadViews(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	b := host(t, job, 0, 1000)
	for _, v := range []struct {
		off   devices.Offset
		typ   elem.Type
		count uint64
		want  error
	}{
		{0, elem.Uint8, 1001, devices.ErrRange},
		{1, elem.Uint8, 1000, devices.ErrRange},
		{1001, elem.Uint8, 0, devices.ErrRange},
		{0, elem.Float32, 251, devices.ErrRange},
		{0, elem.Float64, 1 << 61, devices.ErrRange},
		{1<<64 - 1, elem.Uint8, 2, devices.ErrRange},
		{0, 0, 1, domain.ErrMismatch},
		{0, 255, 1, domain.ErrMismatch},
	} {
		if _, err := domain.NewView(b, v.off, v.typ, v.count); !errors.Is(err, v.want) {
			t.Errorf("%d × %s from %d: %v", v.count, v.typ, v.off, err)
		}
	}
	if _, err := domain.NewView(nil, 0, elem.Uint8, 0); !errors.Is(err, devices.ErrRange) {
		t.Errorf("no buffer: %v", err)
	}
	if v, err := domain.All(b, elem.Float64); err != nil || v.Count() != 125 || v.Size() != 1000 || v.Type() != elem.Float64 {
		t.Errorf("all: %+v, %v", v, err)
	}
	if _, err := domain.All(host(t, job, 0, 3), elem.Int16); !errors.Is(err, devices.ErrRange) {
		t.Errorf("all of 3 bytes: %v", err)
	}
	if err := c[0].Send(within(t), domain.View{}, 1, 1); !errors.Is(err, domain.ErrMismatch) {
		t.Errorf("the zero view: %v", err)
	}
	for _, n := range []int{0, domain.MaxViews + 1} {
		if err := c[0].SendMulti(within(t), make([]domain.View, n), 1, 1); !errors.Is(err, domain.ErrMismatch) {
			t.Errorf("%d views: %v", n, err)
		}
	}
	gone, err := job.nodes[0].comm.Table().Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	v := view(t, gone, 0, 10)
	if err := gone.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := c[0].Send(within(t), v, 1, 1); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	dst := host(t, job, 1, 1000)
	transporttest.Fill(t, b, 1)
	move(t, c, view(t, b, 0, 1000), view(t, dst, 0, 1000), 1, true)
}

func testNames(t *testing.T, w commtest.Way) {
	job := open(t, w, 1, nil)
	d := job.nodes[0].domains
	for name, ranks := range map[string][]wire.Rank{
		"": {0}, strings.Repeat("n", domain.MaxName+1): {0}, "\xff": {0},
	} {
		if _, err := d.NewComm(within(t), name, ranks); !errors.Is(err, domain.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, ranks := range [][]wire.Rank{nil, {0, 0}, make([]wire.Rank, domain.MaxRanks+1)} {
		if _, err := d.NewComm(within(t), "ok", ranks); !errors.Is(err, domain.ErrList) {
			t.Errorf("%d ranks: %v", len(ranks), err)
		}
	}
	longest := strings.Repeat("n", domain.MaxName)
	for range 2 {
		c, err := d.NewComm(within(t), longest, []wire.Rank{0})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = d.NewComm(within(t), longest, []wire.Rank{0}); !errors.Is(err, domain.ErrName) {
			t.Errorf("taken: %v", err)
		}
		if err = errors.Join(c.Destroy(), c.Destroy()); err != nil {
			t.Error(err)
		}
	}
}

// testLists lets ranks form one domain with different lists.
func testLists(t *testing.T, w commtest.Way) {
	job := open(t, w, 3, nil)
	lists := [][]wire.Rank{{0, 1}, {1, 0}}
	together(t, 2, func(i int) error {
		_, err := job.nodes[i].domains.NewComm(within(t), "d", lists[i])
		var bad *domain.ListError
		if !errors.As(err, &bad) || !errors.Is(err, domain.ErrList) || bad.Peer != wire.Rank(1-i) ||
			!slices.Equal(bad.Ours, lists[i]) || !slices.Equal(bad.Theirs, lists[1-i]) {
			t.Errorf("rank %d: %v", i, err)
		}
		return nil
	})
	// Rank 2 is in no other rank's list: only its call fails.
	c := job.form(t, "d", 0, 1)
	var bad *domain.ListError
	if _, err := job.nodes[2].domains.NewComm(within(t), "d", []wire.Rank{0, 1, 2}); !errors.As(err, &bad) {
		t.Errorf("rank 2: %v", err)
	}
	move(t, c, filled(t, job, 0, 100, 1), view(t, host(t, job, 1, 100), 0, 100), 1, true)
}
