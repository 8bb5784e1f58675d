package local_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// mutant is a correct client with one defect: the function that is not nil.
type mutant struct {
	hetero.Client
	// memory is the memory that the client has registered last.
	memory atomic.Pointer[memory]

	devGet    getFunc
	hostGet   getFunc
	set       func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) (hetero.Results, error)
	hostSet   func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error)
	asyncSet  func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (*hetero.Batch, error)
	asyncGet  func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (*hetero.Batch, error)
	remove    removeFunc
	local     removeFunc
	publish   func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error)
	subscribe func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SubscribeOptions) ([]*hetero.Future, error)
	exist     func(ctx context.Context, keys []string) ([]bool, error)
	info      func(ctx context.Context, keys []string, published bool) ([]hetero.MetaInfo, error)
	each      func(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(int, error)) error
	wait      func(ctx context.Context, keys []string, published bool, timeout time.Duration) (hetero.Results, error)
	forget    func(ctx context.Context, id hetero.MemoryID) error
	generate  func(string) (string, error)
}

type (
	getFunc    func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error)
	removeFunc func(ctx context.Context, keys []string) (hetero.Results, error)
)

func (m *mutant) DevMGet(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
	if m.devGet != nil {
		return m.devGet(ctx, keys, l, o)
	}
	return m.Client.DevMGet(ctx, keys, l, o)
}

func (m *mutant) MGetH2D(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
	if m.hostGet != nil {
		return m.hostGet(ctx, keys, l, o)
	}
	return m.Client.MGetH2D(ctx, keys, l, o)
}

func (m *mutant) DevMSet(ctx context.Context, keys []string, l []hetero.DeviceBlobList) (hetero.Results, error) {
	if m.set != nil {
		return m.set(ctx, keys, l)
	}
	return m.Client.DevMSet(ctx, keys, l)
}

func (m *mutant) MSetD2H(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error) {
	if m.hostSet != nil {
		return m.hostSet(ctx, keys, l, o)
	}
	return m.Client.MSetD2H(ctx, keys, l, o)
}

func (m *mutant) AsyncMSetD2H(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (*hetero.Batch, error) {
	if m.asyncSet != nil {
		return m.asyncSet(ctx, keys, l, o)
	}
	return m.Client.AsyncMSetD2H(ctx, keys, l, o)
}

func (m *mutant) AsyncMGetH2D(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (*hetero.Batch, error) {
	if m.asyncGet != nil {
		return m.asyncGet(ctx, keys, l, o)
	}
	return m.Client.AsyncMGetH2D(ctx, keys, l, o)
}

func (m *mutant) DevDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	if m.remove != nil {
		return m.remove(ctx, keys)
	}
	return m.Client.DevDelete(ctx, keys)
}

func (m *mutant) DevLocalDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	if m.local != nil {
		return m.local(ctx, keys)
	}
	return m.Client.DevLocalDelete(ctx, keys)
}

func (m *mutant) DevPublish(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error) {
	if m.publish != nil {
		return m.publish(ctx, keys, l)
	}
	return m.Client.DevPublish(ctx, keys, l)
}

func (m *mutant) DevSubscribe(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SubscribeOptions) ([]*hetero.Future, error) {
	if m.subscribe != nil {
		return m.subscribe(ctx, keys, l, o)
	}
	return m.Client.DevSubscribe(ctx, keys, l, o)
}

func (m *mutant) Exist(ctx context.Context, keys []string) ([]bool, error) {
	if m.exist != nil {
		return m.exist(ctx, keys)
	}
	return m.Client.Exist(ctx, keys)
}

func (m *mutant) GetMetaInfo(ctx context.Context, keys []string, published bool) ([]hetero.MetaInfo, error) {
	if m.info != nil {
		return m.info(ctx, keys, published)
	}
	return m.Client.GetMetaInfo(ctx, keys, published)
}

func (m *mutant) Wait(ctx context.Context, keys []string, published bool, timeout time.Duration) (hetero.Results, error) {
	if m.wait != nil {
		return m.wait(ctx, keys, published, timeout)
	}
	return m.Client.Wait(ctx, keys, published, timeout)
}

func (m *mutant) Each(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(int, error)) error {
	if m.each != nil {
		return m.each(ctx, keys, published, timeout, came)
	}
	return m.Client.Each(ctx, keys, published, timeout, came)
}

func (m *mutant) Unregister(ctx context.Context, id hetero.MemoryID) error {
	if m.forget != nil {
		return m.forget(ctx, id)
	}
	return m.Client.Unregister(ctx, id)
}

func (m *mutant) GenerateKey(prefix string) (string, error) {
	if m.generate != nil {
		return m.generate(prefix)
	}
	return m.Client.GenerateKey(prefix)
}

// scribble changes a byte of the client's memory.
func (m *mutant) scribble(ctx context.Context, at devices.Offset) {
	mem := m.memory.Load()
	s, err := mem.mem.Span(devices.Range{Off: at, Len: 1})
	if err != nil {
		return
	}
	p := []byte{0}
	if mem.mem.Device().CopyOut(ctx, p, s) == nil {
		p[0]++
		_ = mem.mem.Device().CopyIn(ctx, s, p) // if this fails, the mutant has no defect
	}
}

// mutants is a world whose clients all have the same defect.
type mutants struct {
	*world
	mutate func(m *mutant)
}

func (w mutants) Join(t testing.TB) heterotest.Peer {
	t.Helper()
	p := w.world.Join(t)
	m := &mutant{Client: p.Client()}
	w.mutate(m)
	return mutantPeer{p, m}
}

type mutantPeer struct {
	heterotest.Peer
	mutant *mutant
}

func (p mutantPeer) Client() hetero.Client { return p.mutant }

func (p mutantPeer) Memory(t testing.TB, device devices.Name, n devices.Size) heterotest.Memory {
	t.Helper()
	m := p.Peer.Memory(t, device, n)
	if mem, ok := m.(memory); ok {
		p.mutant.memory.Store(&mem)
	}
	return m
}

// changed copies lists and applies a change to each.
func changed(lists []hetero.DeviceBlobList, change func(l *hetero.DeviceBlobList)) []hetero.DeviceBlobList {
	out := slices.Clone(lists)
	for i := range out {
		out[i].Blobs = slices.Clone(out[i].Blobs)
		change(&out[i])
	}
	return out
}

// rewritten changes the results of gets.
func rewritten(get getFunc, change func(r hetero.Results, err error) (hetero.Results, error)) getFunc {
	return func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
		return change(get(ctx, keys, l, o))
	}
}

// mutantTries bounds the attempts of a case with a mutant: the scheduling determines the order
// of events, and some orders hide the defect.
const mutantTries = 20

// TestMutants checks that the suite detects clients with defects.
func TestMutants(t *testing.T) {
	if testing.Short() || kit.Race() {
		t.Skip("looks at the suite, which need not be done each time")
	}
	for _, c := range slices.Concat(transferMutants(), resultMutants(), toldMutants(), lifeMutants(), handOverMutants(), askMutants()) {
		t.Run(c.name, func(t *testing.T) {
			for range mutantTries {
				w := newWorld(t, sims(2, sim.Params{Size: devices.GiB, Mapped: true})...)
				if heterotest.Try(t, mutants{w, c.mutate}, c.by) != nil {
					return
				}
			}
			t.Errorf("case %q has not found it out", c.by)
		})
	}
}

// mutation is one defect, and the case that must detect it.
type mutation struct {
	name, by string
	mutate   func(m *mutant)
}

// transferMutants returns mutants that write wrong bytes.
func transferMutants() []mutation {
	return []mutation{
		{"the offset is one too small", "A4 part of the data", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				return m.Client.DevMGet(ctx, keys, changed(l, func(l *hetero.DeviceBlobList) { l.SourceOffset = max(0, l.SourceOffset-1) }), o)
			}
		}},
		{"the offset does not count", "A4 part of the data", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				return m.Client.DevMGet(ctx, keys, changed(l, func(l *hetero.DeviceBlobList) { l.SourceOffset = 0 }), o)
			}
		}},
		{"two blobs are swapped", "A1 set and get on one device", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				return m.Client.DevMGet(ctx, keys, changed(l, func(l *hetero.DeviceBlobList) {
					l.Blobs[0], l.Blobs[1] = l.Blobs[1], l.Blobs[0]
				}), o)
			}
		}},
		{"two keys are swapped", "A1 set and get on one device", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				l = slices.Clone(l)
				l[0], l[1] = l[1], l[0]
				return m.Client.DevMGet(ctx, keys, l, o)
			}
		}},
		{"a byte before the blobs is written", "A2 set and get across devices", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				defer m.scribble(ctx, 0)
				return m.Client.DevMGet(ctx, keys, l, o)
			}
		}},
		{"a delete touches the owner's bytes", "A13 get after delete", func(m *mutant) {
			m.remove = func(ctx context.Context, keys []string) (hetero.Results, error) {
				m.scribble(ctx, 50)
				return m.Client.DevDelete(ctx, keys)
			}
		}},
		{"a set copies", "A2 set and get across devices", func(m *mutant) {
			m.set = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) (hetero.Results, error) {
				return m.Client.MSetD2H(ctx, keys, l, hetero.SetOptions{})
			}
		}},
		{"a copy to the host binds", "C1 no key exists", func(m *mutant) {
			m.hostSet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, _ hetero.SetOptions) (hetero.Results, error) {
				return m.Client.DevMSet(ctx, keys, l)
			}
		}},
		{"a host object may be longer", "C10 another shape", func(m *mutant) { m.hostGet = m.Client.DevMGet }},
	}
}

// resultMutants returns mutants that do the right thing and report something else.
func resultMutants() []mutation {
	return []mutation{
		{"one key's error is dropped", "E7 ragged lists", func(m *mutant) {
			m.hostGet = rewritten(m.Client.MGetH2D, func(r hetero.Results, err error) (hetero.Results, error) {
				for i := range r {
					if r[i].Err != nil {
						r[i].Err = nil
						break
					}
				}
				return r, err
			})
		}},
		{"success when all failed", "A8 a key that nobody sets", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, _ error) (hetero.Results, error) { return r, nil })
		}},
		{"failure when one failed", "A11 no time to wait", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, _ error) (hetero.Results, error) { return r, r.Err() })
		}},
		{"one fails all", "A11 no time to wait", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, err error) (hetero.Results, error) {
				if failed := r.Failed(); failed != nil {
					for i := range r {
						r[i].Err = failed[0].Err
					}
				}
				return r, err
			})
		}},
	}
}

// toldMutants returns more of them.
func toldMutants() []mutation {
	return []mutation{
		{"results in another order", "A1 set and get on one device", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, err error) (hetero.Results, error) {
				slices.Reverse(r)
				return r, err
			})
		}},
		{"the wrong sentinel", "A8 a key that nobody sets", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, _ error) (hetero.Results, error) {
				for i := range r {
					r[i].Err = hetero.ErrIO
				}
				return r, r.Outcome()
			})
		}},
		{"the shapes are not told", "A7 another number of blobs", func(m *mutant) {
			m.devGet = rewritten(m.Client.DevMGet, func(r hetero.Results, err error) (hetero.Results, error) {
				for i := range r {
					if errors.Is(r[i].Err, hetero.ErrShape) {
						r[i].Err = hetero.ErrShape
					}
				}
				return r, err
			})
		}},
		{"what is skipped is not told", "C2 all exist", func(m *mutant) {
			m.hostSet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error) {
				r, err := m.Client.MSetD2H(ctx, keys, l, o)
				for i := range r {
					r[i].Skipped = false
				}
				return r, err
			}
		}},
		{"too many keys are cut", "B7 too many keys", func(m *mutant) {
			m.set = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) (hetero.Results, error) {
				return m.Client.DevMSet(ctx, keys[:min(len(keys), hetero.MaxKeys)], l[:min(len(l), hetero.MaxKeys)])
			}
		}},
		{"an illegal key is left out", "B3 an illegal key", func(m *mutant) {
			m.publish = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error) {
				if i := slices.IndexFunc(keys, func(k string) bool { return hetero.CheckKey(k) != nil }); i >= 0 {
					keys, l = keys[:i], l[:i]
				}
				return m.Client.DevPublish(ctx, keys, l)
			}
		}},
	}
}

// existing makes a set follow another rule.
func existing(m *mutant, from, to hetero.Existing) {
	m.hostSet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error) {
		other := o.Existing == from
		if other {
			o.Existing = to
		}
		r, err := m.Client.MSetD2H(ctx, keys, l, o)
		for i := range r {
			r[i].Skipped = r[i].Skipped && !other
		}
		return r, err
	}
}

// lifeMutants returns mutants whose keys live too long, or too short.
func lifeMutants() []mutation {
	return []mutation{
		{"the old value is kept", "replace", func(m *mutant) { existing(m, hetero.ExistingReplace, hetero.ExistingSkip) }},
		{"what exists is replaced", "C3 some exist", func(m *mutant) { existing(m, "", hetero.ExistingReplace) }},
		{"what must fail is replaced", "fail on what exists", func(m *mutant) {
			existing(m, hetero.ExistingFail, hetero.ExistingReplace)
		}},
		{"a replica is made in silence", "A3 get twice", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, _ hetero.GetOptions) (hetero.Results, error) {
				return m.Client.DevMGet(ctx, keys, l, hetero.GetOptions{Replica: true})
			}
		}},
		{"no replica is made", "a replica takes over from its owner", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, _ hetero.GetOptions) (hetero.Results, error) {
				return m.Client.DevMGet(ctx, keys, l, hetero.GetOptions{})
			}
		}},
		{"a local delete deletes all", "A12 get after the reader's local delete", func(m *mutant) { m.local = m.Client.DevDelete }},
		{"a delete is local", "delete takes replicas too", func(m *mutant) { m.remove = m.Client.DevLocalDelete }},
		{"a delete does nothing", "E5 events", func(m *mutant) {
			m.remove = func(_ context.Context, keys []string) (hetero.Results, error) {
				r := make(hetero.Results, len(keys))
				for i, key := range keys {
					r[i].Key = key
				}
				return r, nil
			}
		}},
		{"to delete what is not there fails", "A13 get after delete", func(m *mutant) {
			m.remove = func(ctx context.Context, keys []string) (hetero.Results, error) {
				there, err := m.Client.Exist(ctx, keys)
				if err != nil {
					return nil, err
				}
				r, _ := m.Client.DevDelete(ctx, keys)
				for i := range r {
					if !there[i] {
						r[i].Err = hetero.ErrNotFound
					}
				}
				return r, r.Outcome()
			}
		}},
		{"nothing expires", "time to live", func(m *mutant) {
			m.hostSet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error) {
				o.TTL = 0
				return m.Client.MSetD2H(ctx, keys, l, o)
			}
		}},
		{"memory is never let go", "memory that goes under its keys", func(m *mutant) {
			m.forget = func(context.Context, hetero.MemoryID) error { return nil }
		}},
	}
}

// handOverMutants returns mutants that hand over twice, too early or to no client.
func handOverMutants() []mutation {
	return []mutation{
		{"what is received stays published", "B1 many keys of many sizes", func(m *mutant) { m.publish = m.publishTwice }},
		{"the publisher is told too early", "B1 many keys of many sizes", func(m *mutant) {
			m.publish = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error) {
				_, err := m.Client.DevPublish(ctx, keys, l)
				return settled(keys), err
			}
		}},
		{"the subscriber is told too early", "B1 the subscriber comes first", func(m *mutant) {
			m.subscribe = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SubscribeOptions) ([]*hetero.Future, error) {
				_, err := m.Client.DevSubscribe(ctx, keys, l, o)
				return settled(keys), err
			}
		}},
		{"to publish again is refused", "B4 publish again", func(m *mutant) {
			var published atomic.Bool
			m.publish = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error) {
				if published.Swap(true) {
					return nil, hetero.ErrExist
				}
				return m.Client.DevPublish(ctx, keys, l)
			}
		}},
		{"a subscription waits for no one", "B1 the subscriber comes first", func(m *mutant) {
			m.subscribe = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, _ hetero.SubscribeOptions) ([]*hetero.Future, error) {
				futures, err := m.Client.DevSubscribe(ctx, keys, l, hetero.SubscribeOptions{Timeout: time.Nanosecond})
				for _, f := range futures {
					<-f.Done()
				}
				return futures, err
			}
		}},
		{"a missing publication holds up the others", "B6 the missing key comes first", func(m *mutant) {
			m.subscribe = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SubscribeOptions) ([]*hetero.Future, error) {
				_, _ = m.Client.Wait(ctx, keys, true, o.Timeout)
				return m.Client.DevSubscribe(ctx, keys, l, o)
			}
		}},
	}
}

// publishTwice publishes again what was received, before it reports that.
func (m *mutant) publishTwice(ctx context.Context, keys []string, l []hetero.DeviceBlobList) ([]*hetero.Future, error) {
	futures, err := m.Client.DevPublish(ctx, keys, l)
	for i, inner := range futures {
		outer, settle := hetero.NewFuture(keys[i])
		inner.Then(func() {
			go func() {
				if inner.Err() == nil {
					_, _ = m.Client.DevPublish(context.WithoutCancel(ctx), keys[i:i+1], l[i:i+1])
				}
				settle(inner.Err())
			}()
		})
		futures[i] = outer
	}
	return futures, err
}

// settled returns futures that have succeeded.
func settled(keys []string) []*hetero.Future {
	out := make([]*hetero.Future, len(keys))
	for i, key := range keys {
		f, settle := hetero.NewFuture(key)
		settle(nil)
		out[i] = f
	}
	return out
}

// askMutants returns mutants that answer wrongly, or at the wrong time.
func askMutants() []mutation {
	return []mutation{
		{"everything exists", "E7 exist", func(m *mutant) {
			m.exist = func(_ context.Context, keys []string) ([]bool, error) {
				return slices.Repeat([]bool{true}, len(keys)), nil
			}
		}},
		{"blobs are told as one", "E1 the sizes of what is set", func(m *mutant) {
			m.info = func(ctx context.Context, keys []string, published bool) ([]hetero.MetaInfo, error) {
				info, err := m.Client.GetMetaInfo(ctx, keys, published)
				for i := range info {
					info[i].Blobs = []devices.Size{info[i].Size}
				}
				return info, err
			}
		}},
		{"what is set is told as published", "E1 the sizes of what is published", func(m *mutant) {
			m.info = func(ctx context.Context, keys []string, _ bool) ([]hetero.MetaInfo, error) {
				return m.Client.GetMetaInfo(ctx, keys, false)
			}
		}},
		{"a wait does not wait", "wait for keys", func(m *mutant) {
			m.wait = func(ctx context.Context, keys []string, published bool, _ time.Duration) (hetero.Results, error) {
				return m.Client.Wait(ctx, keys, published, 0)
			}
		}},
		{"the missing key holds up what is told", "each key is told as it comes", func(m *mutant) {
			m.each = func(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(int, error)) error {
				r, err := m.Client.Wait(ctx, keys, published, timeout)
				for i, one := range r {
					came(i, one.Err)
				}
				if r == nil {
					return err
				}
				return nil
			}
		}},
		{"a key is told twice", "each key is told as it comes", func(m *mutant) {
			m.each = func(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(int, error)) error {
				return m.Client.Each(ctx, keys, published, timeout, func(i int, err error) {
					came(i, err)
					came(i, err)
				})
			}
		}},
		{"a get does not wait", "A10 keys come step by step", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				o.Timeout = 0
				return m.Client.DevMGet(ctx, keys, l, o)
			}
		}},
		{"the missing key holds up the others", "A9 the missing key comes first", func(m *mutant) {
			m.devGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
				_, _ = m.Client.Wait(ctx, keys, false, o.Timeout)
				return m.Client.DevMGet(ctx, keys, l, o)
			}
		}},
		{"the background is the foreground", "C9 a call that waits returns", func(m *mutant) {
			m.asyncGet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.GetOptions) (*hetero.Batch, error) {
				b, settle := hetero.NewBatch()
				r, _ := m.Client.MGetH2D(ctx, keys, l, o)
				settle(r)
				return b, nil
			}
		}},
		{"the descriptors are read late", "C8 the descriptors are the caller's", func(m *mutant) {
			m.asyncSet = func(ctx context.Context, keys []string, l []hetero.DeviceBlobList, o hetero.SetOptions) (*hetero.Batch, error) {
				b, settle := hetero.NewBatch()
				time.AfterFunc(20*time.Millisecond, func() {
					r, _ := m.Client.MSetD2H(ctx, keys, l, o)
					settle(r)
				})
				return b, nil
			}
		}},
		{"each key drawn is the same", "a key that nobody has drawn", func(m *mutant) {
			m.generate = func(string) (string, error) { return "the-same", nil }
		}},
	}
}
