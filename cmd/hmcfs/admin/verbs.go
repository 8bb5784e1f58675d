package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// verb executes a call and answers it. Its error concerns the whole call: nothing has been
// answered then.
type verb func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error

func verbs() map[adminapi.Verb]verb {
	return map[adminapi.Verb]verb{
		adminapi.VerbPublish:   publish,
		adminapi.VerbSubscribe: subscribe,
		adminapi.VerbClaim:     claim,
		adminapi.VerbFetch:     fetch,
		adminapi.VerbSettle: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			key, err := onlyKey(q)
			if err == nil {
				err = c.DevSettle(ctx, key, q.Received)
			}
			return out.results(nil, err)
		},
		adminapi.VerbMSet: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			return out.results(bind(ctx, c, q))
		},
		adminapi.VerbMGet: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			return out.results(c.DevMGet(ctx, q.Keys, q.Lists, getOptions(q, out)))
		},
		adminapi.VerbDelete: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			if q.Async {
				b, err := c.AsyncDevDelete(ctx, q.Keys)
				return out.batch(ctx, b, err)
			}
			return out.results(c.DevDelete(ctx, q.Keys))
		},
		adminapi.VerbLocalDelete: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			return out.results(c.DevLocalDelete(ctx, q.Keys))
		},
		adminapi.VerbMSetD2H: gather,
		adminapi.VerbMGetH2D: scatter,
		adminapi.VerbExist:   exist,
		adminapi.VerbInfo:    info,
		adminapi.VerbExpire: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			return out.results(c.Expire(ctx, q.Keys, time.Duration(q.TTL)))
		},
		adminapi.VerbWait: wait,
		adminapi.VerbUnregister: func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
			return out.results(nil, c.Unregister(ctx, q.Memory))
		},
		adminapi.VerbContinue: func(ctx context.Context, c hetero.Client, _ *adminapi.Call, out *answer) error {
			of, ok := c.(continuer)
			if !ok {
				return fmt.Errorf("%w: this session ends with the daemon", hetero.ErrUnsupported)
			}
			return out.results(nil, of.Continue(ctx))
		},
	}
}

// continuer is a client that continues a session of an earlier daemon.
type continuer interface {
	Continue(ctx context.Context) error
}

// bind executes an mset, also one with a time to live: a key that can't have it is not set.
func bind(ctx context.Context, c hetero.Client, q *adminapi.Call) (hetero.Results, error) {
	ttl := time.Duration(q.TTL)
	if err := hetero.CheckTTL(ttl); err != nil {
		return nil, err
	}
	set, err := c.DevMSet(ctx, q.Keys, q.Lists)
	if err != nil || ttl == 0 {
		return set, err
	}
	var keys []string
	var places []int
	for i, r := range set {
		if r.Err == nil {
			keys, places = append(keys, r.Key), append(places, i)
		}
	}
	if len(keys) == 0 {
		return set, nil
	}
	// The end of the caller must not leave keys for ever that were to expire.
	ctx = context.WithoutCancel(ctx)
	limited, err := c.Expire(ctx, keys, ttl)
	var undone []string
	for i, place := range places {
		fault := err
		if err == nil {
			fault = limited[i].Err
		}
		if fault != nil {
			set[place].Err = fault
			undone = append(undone, keys[i])
		}
	}
	if len(undone) > 0 {
		_, err = c.DevLocalDelete(ctx, undone)
	}
	return set, err
}

func getOptions(q *adminapi.Call, out *answer) hetero.GetOptions {
	return hetero.GetOptions{Timeout: time.Duration(q.Timeout), Replica: q.Replica, Into: out.room}
}

// publish lasts as long as what is published, or the connection. A client that has
// disconnected by then needs no answer; its publications belong to its session.
func publish(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	futures, err := c.DevPublish(ctx, q.Keys, q.Lists)
	return out.futures(futures, err, ctx.Done())
}

// subscribe lasts until the bytes have arrived, or until nothing is copied any more: the
// end of the connection ends the futures.
func subscribe(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // even if the client does not read the answer
	futures, err := c.DevSubscribe(ctx, q.Keys, q.Lists, hetero.SubscribeOptions{Timeout: time.Duration(q.Timeout)})
	return out.futures(futures, err, nil)
}

// wait answers with each key as it appears. The call is made here, where a panic ends only
// the answer.
func wait(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	e := newEndings()
	end := e.write(out)
	defer end()
	err := c.Each(ctx, q.Keys, q.Published, time.Duration(q.Timeout), func(i int, err error) {
		e.add(lineOf(i, q.Keys[i], err))
	})
	if end(); err == nil {
		out.putAll(e.take())
		out.end()
	}
	return err
}

func onlyKey(q *adminapi.Call) (string, error) {
	if len(q.Keys) != 1 {
		return "", fmt.Errorf("%w: %d keys, and the call takes one", hetero.ErrInvalid, len(q.Keys))
	}
	return q.Keys[0], nil
}

func claim(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	key, err := onlyKey(q)
	if err != nil {
		return err
	}
	info, err := c.DevClaim(ctx, key, hetero.ClaimOptions{Timeout: time.Duration(q.Timeout), Target: q.Memory})
	if err != nil {
		return err
	}
	out.put(adminapi.Line{Key: key, Size: info.Size, Blobs: info.Blobs})
	out.end()
	return nil
}

func fetch(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	key, err := onlyKey(q)
	if err == nil && len(q.Lists) != 1 {
		err = fmt.Errorf("%w: %d lists of blobs, and the call takes one", hetero.ErrInvalid, len(q.Lists))
	}
	if err != nil {
		return err
	}
	return out.results(nil, c.DevFetch(ctx, key, q.Lists[0]))
}

func gather(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	o := hetero.SetOptions{Existing: q.Existing, TTL: time.Duration(q.TTL)}
	if q.Async {
		b, err := c.AsyncMSetD2H(ctx, q.Keys, q.Lists, o)
		return out.batch(ctx, b, err)
	}
	return out.results(c.MSetD2H(ctx, q.Keys, q.Lists, o))
}

func scatter(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	if q.Async {
		b, err := c.AsyncMGetH2D(ctx, q.Keys, q.Lists, getOptions(q, out))
		return out.batch(ctx, b, err)
	}
	return out.results(c.MGetH2D(ctx, q.Keys, q.Lists, getOptions(q, out)))
}

func exist(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	found, err := c.Exist(ctx, q.Keys)
	if err != nil {
		return err
	}
	for i, there := range found {
		out.put(adminapi.Line{N: i, Key: q.Keys[i], Exists: there})
	}
	out.end()
	return nil
}

func info(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
	if err := hetero.CheckKeys(q.Keys); err != nil {
		return err
	}
	for at := 0; at < len(q.Keys) && out.failed == nil; at += infosAtOnce {
		keys := q.Keys[at:min(at+infosAtOnce, len(q.Keys))]
		infos, err := c.GetMetaInfo(ctx, keys, q.Published)
		if infos == nil && err != nil && at == 0 {
			return err
		}
		for i, key := range keys {
			line := lineOf(at+i, key, err)
			if i < len(infos) {
				m := infos[i]
				line = lineOf(at+i, m.Key, m.Err)
				line.Device, line.Size, line.Blobs = m.Device, m.Size, m.Blobs
			}
			out.put(line)
		}
	}
	out.end()
	return nil
}

// infosAtOnce is the number of keys whose blobs are held at a time: a key can have many,
// and the client may not read.
const infosAtOnce = 8
