package sessions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// patience bounds the wait for what the other session does: longer than a machine stops programs for others.
const patience = 3 * time.Minute

// Pair is a program with two sessions. Each of its methods is one round of a program, and may be called again.
type Pair struct {
	A, B *Session
	// Name begins the keys, which no other program may use.
	Name string
	Rand *rand.Rand
	// Round is the number of the round.
	Round int

	socket string
	events *client.Watch
}

// NewPair opens the sessions, at the sockets of two daemons, or twice at that of one. The caller must close the pair.
func NewPair(ctx context.Context, name string, device devices.Name, rng *rand.Rand, a, b string) (*Pair, error) {
	p := &Pair{Name: name, Rand: rng, socket: a}
	var err error
	if p.A, err = Open(ctx, a, device); err != nil {
		return nil, err
	}
	if p.B, err = Open(ctx, b, device); err != nil {
		return nil, errors.Join(err, p.A.Close())
	}
	return p, nil
}

// Close ends the sessions.
func (p *Pair) Close() error {
	var err error
	if p.events != nil {
		err = p.events.Close()
	}
	return errors.Join(err, p.A.Close(), p.B.Close())
}

// Key returns a key of this program.
func (p *Pair) Key(name string) []string { return []string{p.Name + "-" + name} }

// Fresh returns bytes that depend on their position and on the round.
func (p *Pair) Fresh(n int) []byte { return kit.Bytes(p.Rand.Uint64(), 0, n) }

// fill puts fresh bytes into the memory of a session.
func (p *Pair) fill(s *Session) (off, n int, data []byte) {
	n = 1 + p.Rand.IntN(100_000)
	off, data = p.Rand.IntN(Bytes-n), p.Fresh(n)
	copy(s.Memory[off:], data)
	return off, n, data
}

// Get reads a key by a session, and compares.
func (p *Pair) Get(s *Session, key []string, want []byte) error {
	off := p.Rand.IntN(Bytes - len(want))
	clear(s.Memory[off : off+len(want)])
	_, err := s.DevMGet(context.Background(), key, s.List(off, len(want)), hetero.GetOptions{})
	return errors.Join(err, kit.Same(key[0], s.Memory[off:off+len(want)], want))
}

// there checks whether B finds a key.
func (p *Pair) there(ctx context.Context, key []string, want bool) error {
	found, err := p.B.Exist(ctx, key)
	if err == nil && found[0] != want {
		err = fmt.Errorf("%s exists: %v", key[0], found[0])
	}
	return err
}

// Keys sets a key, which B reads, and one of the two removes.
func (p *Pair) Keys() error {
	ctx, key := context.Background(), p.Key(fmt.Sprint(p.Round))
	off, n, data := p.fill(p.A)
	remover := []func(context.Context, []string) (hetero.Results, error){p.B.DevDelete, p.A.DevDelete, p.A.DevLocalDelete}[p.Rand.IntN(3)]
	return kit.InOrder(
		func() error { _, err := p.A.DevMSet(ctx, key, p.A.List(off, n)); return err },
		func() error { return p.there(ctx, key, true) },
		func() error { return p.Get(p.B, key, data) },
		func() error { _, err := remover(ctx, key); return err },
		func() error { return p.there(ctx, key, false) },
	)
}

// HandOver publishes memory, which B receives, once.
func (p *Pair) HandOver() error {
	ctx, key := context.Background(), p.Key(fmt.Sprint(p.Round%3))
	off, n, data := p.fill(p.A)
	to := p.Rand.IntN(Bytes - n)
	clear(p.B.Memory[to : to+n])
	var offered, coming []*hetero.Future
	publish := func() (err error) { offered, err = p.A.DevPublish(ctx, key, p.A.List(off, n)); return err }
	subscribe := func() (err error) {
		coming, err = p.B.DevSubscribe(ctx, key, p.B.List(to, n), hetero.SubscribeOptions{Timeout: patience})
		return err
	}
	first, second := publish, subscribe
	if p.Rand.IntN(2) == 0 {
		first, second = subscribe, publish
	}
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return kit.InOrder(
		first, second,
		func() error { return coming[0].Wait(late) }, func() error { return offered[0].Wait(late) },
		func() error { return kit.Same(key[0], p.B.Memory[to:to+n], data) },
	)
}

// Appear has B wait for a key before it is set.
func (p *Pair) Appear() error {
	ctx, key := context.Background(), p.Key(fmt.Sprint(p.Round))
	came := make(chan error, 1)
	go func() {
		_, err := p.B.Wait(ctx, key, false, patience)
		came <- err
	}()
	off, n, data := p.fill(p.A)
	<-time.After(time.Duration(p.Rand.IntN(20)) * time.Millisecond)
	return kit.InOrder(
		func() error { _, err := p.A.DevMSet(ctx, key, p.A.List(off, n)); return err },
		func() error { return <-came },
		func() error { return p.Get(p.B, key, data) },
		func() error { _, err := p.A.DevDelete(ctx, key); return err },
	)
}

// Copies sets a key that is a copy in host memory.
func (p *Pair) Copies() error {
	ctx, key := context.Background(), p.Key("copy")
	off, n, data := p.fill(p.A)
	return kit.InOrder(
		func() error {
			_, err := p.A.MSetD2H(ctx, key, p.A.List(off, n), hetero.SetOptions{Existing: hetero.ExistingReplace, TTL: time.Hour})
			return err
		},
		func() error { return p.Get(p.B, key, data) },
		func() error { _, err := p.B.Expire(ctx, key, time.Hour); return err },
		func() error {
			infos, err := p.B.GetMetaInfo(ctx, key, false)
			if err == nil && infos[0].Size != devices.Size(n) {
				err = fmt.Errorf("%s has %d bytes, and not %d", key[0], infos[0].Size, n)
			}
			return err
		},
		func() error { _, err := p.B.Delete(ctx, key); return err },
	)
}

// Values sets a value in A, which B gets: one that a slot of the session has room for, or a larger one.
func (p *Pair) Values() error {
	ctx, key, data := context.Background(), p.Key("value")[0], p.Fresh(1+p.Rand.IntN(100_000))
	if err := p.A.Set(ctx, key, data, hetero.SetOptions{TTL: time.Hour}); err != nil {
		return err
	}
	got, err := p.B.Get(ctx, key)
	return errors.Join(err, kit.Same(key, got, data))
}

// Watch waits for the events of a key of A, which B removes.
func (p *Pair) Watch() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.events == nil {
		if p.events, err = client.New(p.socket).Watch(ctx); err != nil {
			return err
		}
	}
	key := p.Key(fmt.Sprint(p.Round))
	off, n, data := p.fill(p.A)
	return kit.InOrder(
		func() error { _, err = p.A.DevMSet(ctx, key, p.A.List(off, n)); return err },
		func() error { return p.Get(p.B, key, data) },
		func() error { return p.await(ctx, "created", key[0]) },
		func() error { _, err = p.B.DevDelete(ctx, key); return err },
		func() error { return p.await(ctx, "removed", key[0]) },
	)
}

// await waits for an event, or for one that says that some are missing.
func (p *Pair) await(ctx context.Context, kind, key string) error {
	for {
		e, err := p.events.Next(ctx)
		if err != nil || e.Kind == "dropped" || e.Kind == kind && e.Key == key {
			return err
		}
	}
}
