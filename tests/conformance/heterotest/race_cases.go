package heterotest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// raceCases returns the cases in which several clients act at once.
func raceCases() []testCase {
	return []testCase{
		{"A17 the owner deletes under a reader", checkDeleteUnderReader},
		{"two readers and a delete", checkTwoReaders},
		{"A18 delete while deletes are under way", checkDeletesAtOnce},
		{"A19 set and get from each other", checkEachOther},
		{"replace under readers", checkReplaceUnderReaders},
		{"C16 two clients set the same keys", checkRacingSets},
	}
}

// together runs functions at once and returns after the last one.
func (e *env) together(n int, f func(i int)) {
	e.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
	if e.Failed() {
		e.FailNow()
	}
}

// readUntil reads a key repeatedly until it no longer exists or the case has failed: each read
// returns all bytes of another buffer, or a clear error. It calls once after the first read.
func (u *user) readUntil(key string, into, of *buffer, once func()) {
	defer into.unknown(0)
	defer once()
	for {
		r, err := u.DevMGet(u.env.Context(), []string{key}, into.lists, hetero.GetOptions{})
		switch {
		case isErr(err, hetero.ErrNotFound, hetero.ErrLost):
			return
		case err != nil || len(r) != 1:
			u.env.Errorf("key %q: %v, %v", key, r, err)
			return
		case !into.has(0, of, 0):
			u.env.Errorf("key %q: a read that succeeded has other bytes", key)
			return
		case u.env.Failed():
			return // the key may stay forever
		}
		once()
	}
}

func checkDeleteUnderReader(e *env) {
	owner, reader := e.user(), e.user()
	s := shape{500_000, 3}
	from, into := owner.buffer(e.near(), s), reader.buffer(e.far(), s)
	for round := range 10 {
		keys := e.keys(fmt.Sprint(round), 1)
		owner.set(keys, from)
		read := make(chan struct{})
		e.together(2, func(i int) {
			if i == 0 {
				reader.readUntil(keys[0], into, from, sync.OnceFunc(func() { close(read) }))
				return
			}
			<-read
			if r, err := owner.DevLocalDelete(e.Context(), keys); err != nil {
				e.Errorf("local delete: %v, %v", r, err)
			}
		})
		reader.exist(keys, false)
		owner.drop(keys)
	}
}

func checkTwoReaders(e *env) {
	owner, deleter := e.user(), e.user()
	readers := []*user{e.user(), e.user()}
	s := shape{300_000, 7, 200_000}
	from := owner.buffer(e.near(), s)
	into := []*buffer{readers[0].buffer(e.near(), s), readers[1].buffer(e.far(), s)}
	for round := range 10 {
		keys := e.keys(fmt.Sprint(round), 1)
		if round%2 == 0 {
			owner.set(keys, from)
		} else {
			owner.store(keys, from, hetero.SetOptions{})
		}
		var read sync.WaitGroup
		read.Add(2)
		e.together(3, func(i int) {
			if i < 2 {
				readers[i].readUntil(keys[0], into[i], from, sync.OnceFunc(read.Done))
				return
			}
			read.Wait()
			if r, err := deleter.DevDelete(e.Context(), keys); err != nil {
				e.Errorf("delete: %v, %v", r, err)
			}
		})
		deleter.exist(keys, false)
	}
}

func checkDeletesAtOnce(e *env) {
	users := []*user{e.user(), e.user(), e.user()}
	keys, shapes := e.keys("k", 30), e.shapes(30, 3, 500)
	from := users[0].buffer(e.near(), shapes...)
	into := users[1].buffer(e.far(), shapes...)
	users[0].set(keys, from)
	users[1].replicate(keys, into, from)
	e.together(6, func(i int) {
		u := users[i%3]
		remove := u.DevDelete
		if i < 3 {
			remove = u.DevLocalDelete
		}
		if r, err := remove(e.Context(), keys); err != nil || r.Err() != nil {
			e.Errorf("removal %d: %v, %v", i, r.Err(), err)
		}
	})
	users[2].exist(keys, false)
}

// checkEachOther lets 2, 3 and 8 clients each set a key and get the keys of all others,
// concurrently.
func checkEachOther(e *env) {
	for _, n := range []int{2, 3, 8} {
		keys := e.keys(fmt.Sprint(n), n)
		users, from, into := make([]*user, n), make([]*buffer, n), make([]*buffer, n)
		for i := range users {
			users[i] = e.user()
			on := []devices.Name{e.near(), e.far()}[i%2]
			from[i] = users[i].buffer(on, shape{20_000, 1 + i})
			all := make([]shape, n)
			for k := range all {
				all[k] = shape{20_000, 1 + k}
			}
			into[i] = users[i].buffer(on, all...)
		}
		e.together(n, func(i int) {
			r, err := users[i].DevMSet(e.Context(), keys[i:i+1], from[i].lists)
			if err != nil {
				e.Errorf("client %d of %d sets: %v, %v", i, n, r, err)
			}
			r, err = users[i].DevMGet(e.Context(), keys, into[i].lists, hetero.GetOptions{Timeout: e.long()})
			if err != nil || r.Err() != nil {
				e.Errorf("client %d of %d gets: %v, %v", i, n, r.Err(), err)
			}
		})
		for i := range users {
			for k := range keys {
				into[i].take(k, from[k], 0, 0)
			}
			into[i].check()
		}
	}
}

// checkReplaceUnderReaders replaces an object repeatedly while two clients read it: each read
// sees the bytes of one version, never of two.
func checkReplaceUnderReaders(e *env) {
	writer := e.user()
	key, s := e.keys("k", 1), shape{100_000, 5, 100_000}
	versions := []*buffer{writer.buffer(e.near(), s), writer.buffer(e.near(), s)}
	writer.store(key, versions[0], hetero.SetOptions{})
	readers := []*user{e.user(), e.user()}
	into := []*buffer{readers[0].buffer(e.near(), s), readers[1].buffer(e.far(), s)}
	var stop atomic.Bool
	e.together(3, func(i int) {
		if i == 2 {
			defer stop.Store(true)
			for round := range 20 {
				o := hetero.SetOptions{Existing: hetero.ExistingReplace}
				r, err := writer.MSetD2H(e.Context(), key, versions[(round+1)%2].lists, o)
				if err != nil || r[0].Skipped {
					e.Errorf("replace: %v, %v", r, err)
				}
			}
			return
		}
		for done := false; !done; {
			done = stop.Load()
			r, err := readers[i].MGetH2D(e.Context(), key, into[i].lists, hetero.GetOptions{})
			if err != nil {
				e.Errorf("read an object that is replaced: %v, %v", r, err)
				return
			}
			if !into[i].has(0, versions[0], 0) && !into[i].has(0, versions[1], 0) {
				e.Error("the bytes of two versions")
				return
			}
		}
	})
	into[0].unknown(0)
	into[1].unknown(0)
}

// checkRacingSets lets two clients set the same keys concurrently: for each key one of them
// wins, and the key has the bytes of that one.
func checkRacingSets(e *env) {
	users := []*user{e.user(), e.user()}
	keys, shapes := e.keys("k", 40), e.shapes(40, 3, 2000)
	from := []*buffer{users[0].buffer(e.near(), shapes...), users[1].buffer(e.far(), shapes...)}
	results := make([]hetero.Results, 2)
	e.together(2, func(i int) {
		r, err := users[i].MSetD2H(e.Context(), keys, from[i].lists, hetero.SetOptions{Existing: hetero.ExistingSkip})
		if err != nil || r.Err() != nil {
			e.Errorf("set: %v, %v", r.Err(), err)
		}
		results[i] = r
	})
	into := users[0].buffer(e.near(), shapes...)
	r, err := users[0].MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	for i := range keys {
		if results[0][i].Skipped == results[1][i].Skipped {
			e.Fatalf("key %d: skipped by both, or by none: %v", i, results[0][i].Skipped)
		}
		winner := 0
		if results[0][i].Skipped {
			winner = 1
		}
		into.take(i, from[winner], i, 0)
	}
}
