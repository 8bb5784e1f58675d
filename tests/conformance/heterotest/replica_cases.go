package heterotest

import (
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// replicaCases returns the cases in which a key has several sources, or its owner ends.
func replicaCases() []testCase {
	return []testCase{
		{"A12 get after the reader's local delete", checkReaderDeletes},
		{"A14 all delete what they have", checkAllDelete},
		{"A16 the first reader ends", checkReaderEnds},
		{"a replica takes over from its owner", checkTakeOver},
		{"a replica of a part", checkPartReplica},
		{"delete takes replicas too", checkDeleteReplicas},
		{"the owner is killed", checkOwnerKilled},
		{"the owner closes", checkOwnerCloses},
	}
}

func checkReaderDeletes(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	for range 2 {
		reader.replicate(keys, into, from)
		r, err := reader.DevLocalDelete(e.Context(), keys)
		e.done(keys, r, err)
		into.fill() // it is no longer a source
		reader.exist(keys, true)
		reader.get(keys, into, from)
	}
}

func checkAllDelete(e *env) {
	owner, reader, third := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.replicate(keys, into, from)
	r, err := third.DevLocalDelete(e.Context(), keys) // which has none of the keys
	e.done(keys, r, err)
	third.exist(keys, true)
	for _, u := range []*user{owner, reader} {
		r, err = u.DevLocalDelete(e.Context(), keys)
		e.done(keys, r, err)
	}
	third.exist(keys, false)
	third.cannotGet(keys, third.buffer(e.near(), shapes...), hetero.ErrNotFound)
}

func checkReaderEnds(e *env) {
	owner, reader, third := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.replicate(keys, into, from)
	e.ok(reader.Close())
	into.fill()
	third.get(keys, third.buffer(e.far(), shapes...), from)
}

func checkTakeOver(e *env) {
	owner, reader, third := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.replicate(keys, into, from)
	r, err := owner.DevLocalDelete(e.Context(), keys[:1])
	e.done(keys[:1], r, err)
	e.ok(owner.Close())
	from.fill() // the owner's bytes, which are no longer a source
	third.exist(keys, true)
	third.get(keys, third.buffer(e.near(), shapes...), into)
	// The replica was the last source.
	e.ok(reader.Close())
	third.cannotGet(keys, third.buffer(e.near(), shapes...), hetero.ErrLost)
}

func checkPartReplica(e *env) {
	owner, reader := e.user(), e.user()
	keys := e.keys("k", 2)
	from, into := owner.buffer(e.near(), shape{100, 30}, shape{40}), reader.buffer(e.near(), shape{100, 29}, shape{20})
	owner.set(keys, from)
	into.lists[1].SourceOffset = 20
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Replica: true})
	if err == nil {
		e.Fatalf("a part became a source of the whole: %v", r)
	}
	for i, one := range r {
		if !isErr(one.Err, hetero.ErrShape, hetero.ErrInvalid) {
			e.Errorf("key %d: %v", i, one.Err)
		}
	}
}

func checkDeleteReplicas(e *env) {
	owner, reader, third := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.replicate(keys, into, from)
	third.drop(keys)
	reader.exist(keys, false)
	third.cannotGet(keys, third.buffer(e.near(), shapes...), hetero.ErrNotFound)
}

func checkOwnerKilled(e *env) {
	owner, reader, third := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.replicate(keys[:2], into.part(0, 2), from.part(0, 2))
	owner.peer.Kill(e.TB)
	kit.Eventually(e.TB, e.patience, func() bool {
		there, err := third.Exist(e.Context(), keys[2:])
		return err == nil && !there[0] && !there[1]
	})
	third.cannotGet(keys[2:], third.buffer(e.near(), shapes[2:]...), hetero.ErrLost)
	third.get(keys[:2], third.buffer(e.near(), shapes[:2]...), into.part(0, 2))
	// A lost object can be replaced and deleted.
	again := third.buffer(e.near(), shapes[2])
	third.set(keys[2:3], again)
	reader.get(keys[2:3], reader.buffer(e.near(), shapes[2]), again)
	third.drop(keys)
	third.exist(keys, false)
}

func checkOwnerCloses(e *env) {
	owner, other := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), other.buffer(e.far(), shapes...)
	owner.set(keys, from)
	e.ok(owner.Close())
	other.exist(keys, false)
	other.cannotGet(keys, into, hetero.ErrLost)
	r, err := owner.DevMSet(e.Context(), keys, from.lists)
	e.refused("a call of a closed client", r, err, hetero.ErrClosed)
}
