package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// results makes a call that returns a result for each key.
func (s *Session) results(ctx context.Context, verb adminapi.Verb, q *adminapi.Call) (hetero.Results, error) {
	return s.resultsInto(ctx, verb, q, nil)
}

// resultsInto is results with memory for them.
func (s *Session) resultsInto(ctx context.Context, verb adminapi.Verb, q *adminapi.Call, r hetero.Results) (hetero.Results, error) {
	a, asked, err := s.ask(ctx, verb, q)
	if err != nil {
		if !asked {
			return nil, err
		}
		r = allFailed(q.Keys, err)
		return r, r.Outcome()
	}
	r = r.Room(len(q.Keys))
	a.results(r)
	a.recycle()
	return r, r.Outcome()
}

func allFailed(keys []string, err error) hetero.Results {
	r := make(hetero.Results, len(keys))
	for i, key := range keys {
		r[i] = hetero.Result{Key: key, Err: err}
	}
	return r
}

// results reads the result of each key, and ends the answer.
func (a *answer) results(r hetero.Results) {
	a.told = slices.Grow(a.told[:0], len(a.keys))[:len(a.keys)]
	clear(a.told)
	a.outcomes(a.told, func(i int, one hetero.Result) { r[i] = one })
}

// outcomes passes the result of each key that told does not have yet to each, once, as it arrives,
// and ends the answer.
func (a *answer) outcomes(told []bool, each func(i int, r hetero.Result)) {
	_, err := a.some(told, each)
	a.end()
	var why error
	for i, key := range a.keys {
		if told[i] {
			continue
		}
		if why == nil {
			why = a.why(err)
		}
		each(i, hetero.Result{Key: key, Err: why})
	}
}

// some is outcomes for the results up to a line without a key, or to the end; see each.
func (a *answer) some(told []bool, each func(i int, r hetero.Result)) (begun bool, err error) {
	plain := func(n int) {
		if !told[n] {
			told[n] = true
			each(n, hetero.Result{Key: a.keys[n]})
		}
	}
	return a.each(plain, func(l adminapi.Line) {
		if !told[l.N] {
			told[l.N] = true
			each(l.N, hetero.Result{Key: a.keys[l.N], Err: a.session.errorOf(l.Code, l.Error), Skipped: l.Skipped})
		}
	})
}

// batch makes a call that continues in the background.
func (s *Session) batch(ctx context.Context, verb adminapi.Verb, q *adminapi.Call) (*hetero.Batch, error) {
	q.Async = true
	a, _, err := s.ask(ctx, verb, q)
	if err != nil {
		return nil, err
	}
	begun, err := a.each(nil, func(adminapi.Line) {})
	if !begun {
		a.end()
		return nil, a.why(err)
	}
	a.keep()
	b, settle := hetero.NewBatch()
	go func() {
		r := make(hetero.Results, len(a.keys))
		a.results(r)
		settle(r)
	}()
	return b, nil
}

// futures makes a call whose keys complete one by one. Unless lasting, the context has no
// effect on them once the call has started.
func (s *Session) futures(ctx context.Context, verb adminapi.Verb, q *adminapi.Call, lasting bool) ([]*hetero.Future, error) {
	a, _, err := s.ask(ctx, verb, q)
	if err != nil {
		return nil, err
	}
	futures := make([]*hetero.Future, len(a.keys))
	settle := make([]func(error), len(a.keys))
	for i, key := range a.keys {
		futures[i], settle[i] = hetero.NewFuture(key)
	}
	told := make([]bool, len(a.keys))
	each := func(i int, r hetero.Result) { settle[i](r.Err) }
	begun, whole := a.some(told, each)
	if !begun {
		a.end()
		return nil, a.why(whole)
	}
	if !lasting {
		a.unwatch()
	}
	a.keep()
	go a.outcomes(told, each)
	return futures, whole
}

// DevPublish offers blobs under keys. See hetero.Client for this and all following calls.
func (s *Session) DevPublish(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) ([]*hetero.Future, error) {
	return s.futures(ctx, adminapi.VerbPublish, &adminapi.Call{Keys: keys, Lists: lists}, false)
}

// DevSubscribe receives published keys into blobs.
func (s *Session) DevSubscribe(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SubscribeOptions,
) ([]*hetero.Future, error) {
	q := &adminapi.Call{Keys: keys, Lists: lists, Timeout: adminapi.Duration(o.Timeout)}
	return s.futures(ctx, adminapi.VerbSubscribe, q, true)
}

// DevClaim reserves a publication. The context only bounds the wait for it.
func (s *Session) DevClaim(ctx context.Context, key string, o hetero.ClaimOptions) (hetero.MetaInfo, error) {
	q := &adminapi.Call{Keys: []string{key}, Timeout: adminapi.Duration(o.Timeout), Memory: o.Target}
	info, came := hetero.MetaInfo{Key: key}, false
	err := s.listed(ctx, adminapi.VerbClaim, q, func(l adminapi.Line) {
		info.Size, info.Blobs, came = l.Size, l.Blobs, true
	})
	if err == nil && !came {
		err = errAnswer
	}
	return info, err
}

// DevFetch copies bytes of a reserved publication.
func (s *Session) DevFetch(ctx context.Context, key string, to hetero.DeviceBlobList) error {
	q := &adminapi.Call{Keys: []string{key}, Lists: []hetero.DeviceBlobList{to}}
	return s.listed(ctx, adminapi.VerbFetch, q, func(adminapi.Line) {})
}

// DevSettle ends a reservation.
func (s *Session) DevSettle(ctx context.Context, key string, received bool) error {
	q := &adminapi.Call{Keys: []string{key}, Received: received}
	return s.listed(ctx, adminapi.VerbSettle, q, func(adminapi.Line) {})
}

// DevMSet binds keys to blobs.
func (s *Session) DevMSet(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
	return s.results(ctx, adminapi.VerbMSet, &adminapi.Call{Keys: keys, Lists: lists})
}

// DevMGet copies the bytes of keys into blobs.
func (s *Session) DevMGet(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (hetero.Results, error) {
	return s.resultsInto(ctx, adminapi.VerbMGet, getCall(keys, lists, o), o.Into)
}

func getCall(keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions) *adminapi.Call {
	return &adminapi.Call{Keys: keys, Lists: lists, Timeout: adminapi.Duration(o.Timeout), Replica: o.Replica}
}

// DevDelete removes keys with all their replicas.
func (s *Session) DevDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return s.results(ctx, adminapi.VerbDelete, &adminapi.Call{Keys: keys})
}

// DevLocalDelete removes this session's part of keys.
func (s *Session) DevLocalDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return s.results(ctx, adminapi.VerbLocalDelete, &adminapi.Call{Keys: keys})
}

// AsyncDevDelete is DevDelete in the background.
func (s *Session) AsyncDevDelete(ctx context.Context, keys []string) (*hetero.Batch, error) {
	return s.batch(ctx, adminapi.VerbDelete, &adminapi.Call{Keys: keys})
}

// MSetD2H gathers the blobs of each key into one object in host memory.
func (s *Session) MSetD2H(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions,
) (hetero.Results, error) {
	return s.results(ctx, adminapi.VerbMSetD2H, setCall(keys, lists, o))
}

func setCall(keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions) *adminapi.Call {
	return &adminapi.Call{Keys: keys, Lists: lists, Existing: o.Existing, TTL: adminapi.Duration(o.TTL)}
}

// MGetH2D scatters objects into blobs.
func (s *Session) MGetH2D(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (hetero.Results, error) {
	return s.resultsInto(ctx, adminapi.VerbMGetH2D, getCall(keys, lists, o), o.Into)
}

// AsyncMSetD2H is MSetD2H in the background.
func (s *Session) AsyncMSetD2H(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions,
) (*hetero.Batch, error) {
	return s.batch(ctx, adminapi.VerbMSetD2H, setCall(keys, lists, o))
}

// AsyncMGetH2D is MGetH2D in the background.
func (s *Session) AsyncMGetH2D(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (*hetero.Batch, error) {
	return s.batch(ctx, adminapi.VerbMGetH2D, getCall(keys, lists, o))
}

// Delete is DevDelete.
func (s *Session) Delete(ctx context.Context, keys []string) (hetero.Results, error) {
	return s.DevDelete(ctx, keys)
}

// Exist reports for each key whether it names an object whose bytes are available.
func (s *Session) Exist(ctx context.Context, keys []string) ([]bool, error) {
	there, came := make([]bool, len(keys)), make([]bool, len(keys))
	err := s.listed(ctx, adminapi.VerbExist, &adminapi.Call{Keys: keys}, func(l adminapi.Line) {
		there[l.N], came[l.N] = l.Exists, true
	})
	if err == nil && slices.Contains(came, false) {
		err = errAnswer
	}
	if err != nil {
		return nil, err
	}
	return there, nil
}

// GetMetaInfo returns the blobs of keys.
func (s *Session) GetMetaInfo(ctx context.Context, keys []string, published bool) ([]hetero.MetaInfo, error) {
	infos, r := make([]hetero.MetaInfo, len(keys)), allFailed(keys, errAnswer)
	err := s.listed(ctx, adminapi.VerbInfo, &adminapi.Call{Keys: keys, Published: published}, func(l adminapi.Line) {
		r[l.N].Err = s.errorOf(l.Code, l.Error)
		infos[l.N] = hetero.MetaInfo{Key: keys[l.N], Err: r[l.N].Err, Device: l.Device, Blobs: l.Blobs, Size: l.Size}
	})
	if err != nil {
		return nil, err
	}
	return infos, r.Outcome()
}

// listed makes a call that returns a line for each key, or fails as a whole.
func (s *Session) listed(ctx context.Context, verb adminapi.Verb, q *adminapi.Call, line func(adminapi.Line)) error {
	a, _, err := s.ask(ctx, verb, q)
	if err != nil {
		return err
	}
	_, err = a.each(nil, line)
	whole := errors.Is(err, io.EOF)
	a.end()
	if !whole {
		return a.why(err)
	}
	return nil
}

// GenerateKey returns prefix, or if it is empty a unique random key.
func (s *Session) GenerateKey(prefix string) (string, error) {
	if err := s.ended(); err != nil {
		return "", err
	}
	return hetero.GenerateKey(prefix)
}

// Expire sets the time to live of keys.
func (s *Session) Expire(ctx context.Context, keys []string, ttl time.Duration) (hetero.Results, error) {
	return s.results(ctx, adminapi.VerbExpire, &adminapi.Call{Keys: keys, TTL: adminapi.Duration(ttl)})
}

// Each reports for each key when it names an object whose bytes are available.
func (s *Session) Each(
	ctx context.Context, keys []string, published bool, timeout time.Duration, came func(i int, err error),
) error {
	q := &adminapi.Call{Keys: keys, Published: published, Timeout: adminapi.Duration(timeout)}
	a, asked, err := s.ask(ctx, adminapi.VerbWait, q)
	switch {
	case err == nil:
		a.outcomes(make([]bool, len(keys)), func(i int, r hetero.Result) { came(i, r.Err) })
	case !asked:
		return err
	default:
		for i := range keys {
			came(i, err)
		}
	}
	return nil
}

// Wait returns when all keys name objects whose bytes are available, or have failed.
func (s *Session) Wait(ctx context.Context, keys []string, published bool, timeout time.Duration) (hetero.Results, error) {
	q := &adminapi.Call{Keys: keys, Published: published, Timeout: adminapi.Duration(timeout)}
	return s.results(ctx, adminapi.VerbWait, q)
}
