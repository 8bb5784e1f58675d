package objects_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// court is an authority with a fixed set of keys that another node has.
type court struct {
	mu sync.Mutex
	// ours and theirs are keys as "keys x" and "publish x".
	ours, theirs map[string]bool
	// asked counts the keys that were claimed.
	asked int
	fail  error
}

func newCourt(theirs ...string) *court {
	c := &court{ours: map[string]bool{}, theirs: map[string]bool{}}
	for _, name := range theirs {
		c.theirs[name] = true
	}
	return c
}

func courtName(s objects.KeySpace, key string) string {
	return map[objects.KeySpace]string{objects.SpaceKeys: "keys ", objects.SpacePublish: "publish "}[s] + key
}

func (c *court) Claim(_ context.Context, s objects.KeySpace, keys []string) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(keys))
	for i, key := range keys {
		c.asked++
		switch name := courtName(s, key); {
		case c.fail != nil:
			errs[i] = c.fail
		case c.theirs[name]:
			errs[i] = fmt.Errorf("node b has it: %w", metadata.ErrExist)
		default:
			c.ours[name] = true
		}
	}
	return errs
}

func (c *court) Have(s objects.KeySpace, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.ours[courtName(s, key)] = true
	}
}

func (c *court) Release(s objects.KeySpace, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		delete(c.ours, courtName(s, key))
	}
}

// has fails the test unless exactly these keys are ours.
func (c *court) has(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(slices.Sorted(maps.Keys(c.ours)), "\n")); diff != "" {
		t.Errorf("ours (-want +got):\n%s", diff)
	}
}

// governed returns a rig whose store has an authority.
func governed(t *testing.T, theirs ...string) (*keyedRig, *court) {
	t.Helper()
	r, c := newKeyed(t, keyedOptions{}), newCourt(theirs...)
	if err := r.store.SetAuthority(r.ctx(), c); err != nil {
		t.Fatal(err)
	}
	return r, c
}

// TestAuthorityGather: keys that another node has are treated as if they were here.
func TestAuthorityGather(t *testing.T) {
	kit.Check(t)
	r, c := governed(t, "keys theirs")
	m := r.memory(0, 100, 1)
	set := []objects.Keyed{{Key: "mine", Blobs: m.all()}, {Key: "theirs", Blobs: m.all()}, {Key: "no/key", Blobs: m.all()}}
	got := r.user.Gather(r.ctx(), set, objects.GatherOptions{Existing: objects.ExistingSkip})
	if got[0].Err != nil || got[0].Skipped || got[1].Err != nil || !got[1].Skipped || !errors.Is(got[2].Err, metadata.ErrInvalidKey) {
		t.Errorf("skipping: %+v", got)
	}
	r.absent("theirs")
	c.has(t, "keys mine")
	for _, rule := range []objects.ExistingRule{objects.ExistingFail, objects.ExistingReplace} {
		if one := r.user.Gather(r.ctx(), set[1:2], objects.GatherOptions{Existing: rule})[0]; !errors.Is(one.Err, metadata.ErrExist) {
			t.Errorf("rule %v: %+v", rule, one)
		}
	}
	r.gather("mine", objects.GatherOptions{Existing: objects.ExistingReplace}, m.blobs([2]uint64{0, 50}))
	r.holds("mine", kit.Bytes(1, 0, 50))
	c.has(t, "keys mine")
	if err := r.user.Drop(r.ctx(), []string{"mine"})[0]; err != nil {
		t.Fatal(err)
	}
	c.has(t)
	c.fail = errors.New("out of order")
	if one := r.user.Gather(r.ctx(), set[:1], objects.GatherOptions{})[0]; !errors.Is(one.Err, c.fail) {
		t.Errorf("with an authority that fails: %+v", one)
	}
	c.has(t)
}

// TestAuthorityMemory: keys that are bound and set, and keys that are lost at the end
// of their memory.
func TestAuthorityMemory(t *testing.T) {
	kit.Check(t)
	r, c := governed(t, "keys theirs", "publish theirs")
	m := r.memory(0, 100, 1)
	set := []objects.Keyed{{Key: "x", Blobs: m.all()}, {Key: "theirs", Blobs: m.all()}}
	if errs := r.user.Bind(r.ctx(), set); errs[0] != nil || !errors.Is(errs[1], metadata.ErrExist) {
		t.Errorf("bind: %v", errs)
	}
	asked := c.asked
	if errs := r.user.Bind(r.ctx(), set[:1]); errs[0] != nil || c.asked != asked {
		t.Errorf("bind again: %v, asked %d times more", errs, c.asked-asked)
	}
	if _, errs := r.user.Publish(r.ctx(), set); errs[0] != nil || !errors.Is(errs[1], metadata.ErrExist) {
		t.Errorf("publish: %v", errs)
	}
	ino := r.rig.file("sim1", "f", 3, 10)
	if err := r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte("theirs"), 0); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("give a key: %v", err)
	}
	for _, key := range []string{"f1", "f2"} {
		if err := r.store.SetXattr(r.ctx(), ino, "user.hmc.key", []byte(key), 0); err != nil {
			t.Error(err)
		}
	}
	c.has(t, "keys f2", "keys x", "publish x")
	if err := r.offer("sim1", "f", "theirs"); !errors.Is(err, metadata.ErrExist) {
		t.Errorf("rename into publish: %v", err)
	}
	if err := r.offer("sim1", "f", "f"); err != nil {
		t.Error(err)
	}
	c.has(t, "keys x", "publish f", "publish x")
	if err := r.fetch("f", "sim1", "f"); err != nil {
		t.Error(err)
	}
	c.has(t, "keys x", "publish x")
	if err := m.region.Close(r.ctx()); err != nil {
		t.Error(err)
	}
	// A lost object is replaced, here and elsewhere.
	c.has(t)
	if err := r.store.Unlink(r.ctx(), r.root("sim1"), "f"); err != nil {
		t.Error(err)
	}
}

// TestAuthorityComes: keys that exist before the authority are reported to it, except
// those of lost objects; without an authority nothing changes.
func TestAuthorityComes(t *testing.T) {
	kit.Check(t)
	r := newKeyed(t, keyedOptions{})
	m := r.memory(0, 100, 1)
	r.gather("stays", objects.GatherOptions{}, m.all())
	if errs := r.user.Bind(r.ctx(), []objects.Keyed{{Key: "ends", Blobs: m.all()}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	if err := m.region.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.mustOffer("sim1", "offered", 1, 10)
	c := newCourt()
	if err := r.store.SetAuthority(r.ctx(), c); err != nil {
		t.Fatal(err)
	}
	c.has(t, "keys stays", "publish offered")
	// Truncated to 0, it becomes live again.
	in, err := r.store.KeyIno(r.ctx(), "ends")
	if err != nil {
		t.Fatal(err)
	}
	zero := uint64(0)
	if _, err = r.store.SetAttr(r.ctx(), in, objects.Change{Size: &zero}); err != nil {
		t.Fatal(err)
	}
	c.has(t, "keys ends", "keys stays", "publish offered")
	if err = r.store.SetAuthority(r.ctx(), nil); err != nil {
		t.Fatal(err)
	}
	if err = r.fetch("offered", "sim1", "f"); err != nil {
		t.Error(err)
	}
	c.has(t, "keys ends", "keys stays", "publish offered")
	if err = r.store.Unlink(r.ctx(), r.root("sim1"), "f"); err != nil {
		t.Error(err)
	}
}

// TestAuthorityContest has users set and drop the same keys concurrently: in the end
// the authority knows exactly the keys that exist.
func TestAuthorityContest(t *testing.T) {
	kit.Check(t)
	r, c := governed(t)
	keys := manyKeys("k", 5)
	var users sync.WaitGroup
	for u := range 4 {
		m := r.memory(u%2, 64, uint64(u))
		users.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(u)))
			for range 200 {
				k := objects.Keyed{Key: keys[rng.IntN(len(keys))], Blobs: m.all()}
				switch rng.IntN(4) {
				case 0:
					r.user.Gather(r.ctx(), []objects.Keyed{k}, objects.GatherOptions{Existing: objects.ExistingRule(rng.IntN(3))})
				case 1:
					r.user.Bind(r.ctx(), []objects.Keyed{k})
				case 2:
					r.user.Publish(r.ctx(), []objects.Keyed{k})
					_ = r.user.Receive(r.ctx(), k)
				default:
					r.user.Drop(r.ctx(), []string{k.Key})
				}
			}
		})
	}
	users.Wait()
	var want []string
	entries, err := r.store.Keys(r.ctx(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		want = append(want, "keys "+e.Key)
	}
	names, err := r.store.ReadDir(r.ctx(), metadata.PublishIno, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		want = append(want, "publish "+e.Name)
	}
	slices.Sort(want)
	c.has(t, want...)
}

// TestClaim: a claimant of a publication reads it as a file, and takes it or gives it
// back; no other one gets it meanwhile.
func TestClaim(t *testing.T) {
	kit.Check(t)
	r, c := governed(t)
	m, to := r.memory(0, 300, 5), r.memory(1, 300, 6)
	k := objects.Keyed{Key: "x", Blobs: m.blobs([2]uint64{0, 100}, [2]uint64{100, 200})}
	all, errs := r.user.Publish(r.ctx(), []objects.Keyed{k})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	for _, take := range []bool{false, true} {
		cl, err := r.user.Claim(r.ctx(), "x", true)
		if err != nil {
			t.Fatal(err)
		}
		if blobs, failure := cl.Blobs(r.ctx()); failure != nil || !slices.Equal(blobs, []uint64{100, 200}) {
			t.Errorf("blobs %v, %v", blobs, failure)
		}
		soon, stop := context.WithCancel(r.ctx())
		stop()
		if _, err = r.user.Claim(soon, "x", true); !errors.Is(err, context.Canceled) {
			t.Errorf("another claim: %v", err)
		}
		f, err := cl.Open(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.read(f, 0, 300); kit.DiffAt(got, 5, 0) >= 0 {
			t.Error("other bytes")
		}
		r.close(f)
		if !take {
			r.pending(all[0])
			cl.GiveBack(r.ctx())
			continue
		}
		if err = cl.Take(r.ctx()); err != nil {
			t.Error(err)
		}
	}
	if err := r.ended(all[0]); err != nil {
		t.Errorf("the publisher hears %v", err)
	}
	if _, err := r.user.Claim(r.ctx(), "x", true); !errors.Is(err, metadata.ErrNotExist) {
		t.Errorf("claim what is received: %v", err)
	}
	c.has(t)
	fillFrom(t, r, to)
}

// fillFrom fills memory from a source that is not in the store.
func fillFrom(t *testing.T, r *keyedRig, to *memory) {
	t.Helper()
	bytes := kit.Bytes(9, 0, 300)
	src := objects.Source{Blobs: []uint64{100, 200}, Span: func(off, n uint64) transport.Span {
		return transport.HostSpan(bytes[off : off+n])
	}}
	sc := objects.Scatter{Keyed: objects.Keyed{Key: "y", Blobs: to.blobs([2]uint64{200, 100}, [2]uint64{0, 200})}, Exact: true}
	if err := r.user.Fill(r.ctx(), sc, src); err != nil {
		t.Error(err)
	}
	if got := to.bytes(); kit.FirstDiff(got[200:], bytes[:100]) >= 0 || kit.FirstDiff(got[:200], bytes[100:]) >= 0 {
		t.Error("other bytes")
	}
	part := objects.Scatter{Keyed: objects.Keyed{Key: "y", Blobs: to.blobs([2]uint64{0, 50}, [2]uint64{50, 60})}, Offset: 40}
	if err := r.user.Fill(r.ctx(), part, src); err != nil {
		t.Error(err)
	}
	if got := to.bytes(); kit.FirstDiff(got[:50], bytes[40:90]) >= 0 || kit.FirstDiff(got[50:110], bytes[140:200]) >= 0 {
		t.Error("other bytes of a part")
	}
	var shape *objects.ShapeError
	if part.Offset = 60; !errors.As(r.user.Fill(r.ctx(), part, src), &shape) {
		t.Error("more than there is is no shape error")
	}
	if sc.Replica = true; !errors.Is(r.user.Fill(r.ctx(), sc, src), objects.ErrInvalid) && !errors.Is(r.user.Fill(r.ctx(), sc, src), objects.ErrUnsupported) {
		t.Error("a replica was made")
	}
}
