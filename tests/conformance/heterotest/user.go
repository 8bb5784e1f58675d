package heterotest

import (
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// user is a client of a case.
type user struct {
	hetero.Client
	env  *env
	peer Peer
}

// user creates a client.
func (e *env) user() *user {
	e.Helper()
	p := e.world.Join(e.TB)
	return &user{Client: p.Client(), env: e, peer: p}
}

// set binds keys to the blobs of a buffer.
func (u *user) set(keys []string, from *buffer) {
	u.env.Helper()
	r, err := u.DevMSet(u.env.Context(), keys, from.lists)
	u.env.done(keys, r, err)
}

// get reads keys into a buffer, which must then have the bytes of another one.
func (u *user) get(keys []string, into, of *buffer) {
	u.env.Helper()
	r, err := u.DevMGet(u.env.Context(), keys, into.lists, hetero.GetOptions{})
	u.env.done(keys, r, err)
	into.takeAll(of)
}

// cannotGet checks that no key can be read, and that the buffer is unchanged.
func (u *user) cannotGet(keys []string, into *buffer, want error) {
	u.env.Helper()
	r, err := u.DevMGet(u.env.Context(), keys, into.lists, hetero.GetOptions{})
	u.env.outcome(keys, r, err, failing(want, keys...))
}

// replicate is like get, and makes a replica.
func (u *user) replicate(keys []string, into, of *buffer) {
	u.env.Helper()
	r, err := u.DevMGet(u.env.Context(), keys, into.lists, hetero.GetOptions{Replica: true})
	u.env.done(keys, r, err)
	into.takeAll(of)
}

// store gathers the blobs of a buffer into host objects.
func (u *user) store(keys []string, from *buffer, o hetero.SetOptions) hetero.Results {
	u.env.Helper()
	r, err := u.MSetD2H(u.env.Context(), keys, from.lists, o)
	u.env.outcome(keys, r, err, nil)
	return r
}

// load scatters host objects into a buffer, which must then have the bytes of another one.
func (u *user) load(keys []string, into, of *buffer) {
	u.env.Helper()
	r, err := u.MGetH2D(u.env.Context(), keys, into.lists, hetero.GetOptions{})
	u.env.done(keys, r, err)
	into.takeAll(of)
}

// drop removes keys.
func (u *user) drop(keys []string) {
	u.env.Helper()
	r, err := u.DevDelete(u.env.Context(), keys)
	u.env.done(keys, r, err)
}

// publish offers the blobs of a buffer, and checks that they have not been received yet.
func (u *user) publish(keys []string, from *buffer) []*hetero.Future {
	u.env.Helper()
	futures, err := u.DevPublish(u.env.Context(), keys, from.lists)
	u.env.ok(err)
	if len(futures) != len(keys) {
		u.env.Fatalf("%d futures for %d keys", len(futures), len(keys))
	}
	return futures
}

// subscribe starts to receive keys into a buffer. The call returns whether or not they exist.
func (u *user) subscribe(keys []string, into *buffer) []*hetero.Future {
	u.env.Helper()
	var futures []*hetero.Future
	c := u.env.start(func() (_ hetero.Results, err error) {
		futures, err = u.DevSubscribe(u.env.Context(), keys, into.lists, hetero.SubscribeOptions{Timeout: u.env.long()})
		return nil, err
	})
	_, err := c.wait()
	u.env.ok(err)
	return futures
}

// receive receives keys into a buffer, which must then have the bytes of another one.
func (u *user) receive(keys []string, into, of *buffer) {
	u.env.Helper()
	u.env.awaitAll(keys, u.subscribe(keys, into), nil)
	into.takeAll(of)
}

// exist checks that all keys exist, or that none does.
func (u *user) exist(keys []string, want bool) {
	u.env.Helper()
	there, err := u.Exist(u.env.Context(), keys)
	u.env.ok(err)
	if len(there) != len(keys) {
		u.env.Fatalf("%d answers for %d keys", len(there), len(keys))
	}
	for i, is := range there {
		if is != want {
			u.env.Fatalf("key %q exists: %v, want %v", keys[i], is, want)
		}
	}
}
