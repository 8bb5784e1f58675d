package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestHeldSessions is TestHeld for programs with sessions: their calls wait while there is no daemon, and
// the next one has their memory, keys and publications.
func TestHeldSessions(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	h := &held{t: t, devices: []string{"host", "sim0"}, m: mnt.Prepare(t, mnt.Options{
		Devices: []string{"host,size=256MiB", "sim:0,size=128MiB"},
	})}
	h.m.Start()
	t.Cleanup(h.clear)
	h.torture(kit.Rounds(1, 2, 30), map[string]func(w *heldUser) error{
		"host/keys": (*heldUser).keys, "sim0/keys": (*heldUser).keys, "host/standing": (*heldUser).standing,
		"host/handover": (*heldUser).handOver, "sim0/handover": (*heldUser).handOver, "host/appear": (*heldUser).appear,
		"host/copies": (*heldUser).copies, "sim0/memory": (*heldUser).memory, "host/watch": (*heldUser).watch, "sim0/files": (*heldUser).files, "host/bound": (*heldUser).bound,
		"host/values": (*heldUser).values,
		"host/python": (*heldUser).python,
	})
	h.checkEnd()
}

// heldSession is a session of a test with one piece of memory.
type heldSession struct {
	*client.Session
	device devices.Name
	memory []byte
	id     hetero.MemoryID
}

// heldBytes is the size of the memory of a session.
const heldBytes = 1 << 20

// sessions opens the sessions of a user, once.
func (w *heldUser) sessions() (a, b *heldSession, err error) {
	for len(w.own) < 2 && err == nil {
		var s *client.Session
		if s, err = client.OpenSession(context.Background(), w.socket); err != nil {
			break
		}
		one := &heldSession{Session: s, device: devices.Name(filepath.Base(filepath.Dir(w.dir)))}
		w.own = append(w.own, one)
		one.memory, one.id, err = one.register(heldBytes)
	}
	if err != nil {
		return nil, nil, err
	}
	return w.own[0], w.own[1], nil
}

// register registers new memory.
func (s *heldSession) register(size int) ([]byte, hetero.MemoryID, error) {
	fd, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), "memfd:held")
	defer func() { _ = f.Close() }() // the daemon and the client have their own
	if err = f.Truncate(int64(size)); err != nil {
		return nil, 0, err
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, 0, err
	}
	first, family := 0, devices.Family("host")
	if s.device != "host" {
		family = "sim"
	}
	id, err := s.PreRegister(context.Background(), hetero.Memory{
		Device: s.device, Files: []*os.File{f},
		Share: &share.Memory{
			Family: family, PID: os.Getpid(), Size: devices.Size(size),
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: devices.Size(size)}},
		},
	})
	return data, id, err
}

// list is a range of the memory of a session.
func (s *heldSession) list(off, n int) []hetero.DeviceBlobList {
	return []hetero.DeviceBlobList{{Device: s.device, Blobs: []hetero.Blob{{Memory: s.id, Off: devices.Offset(off), Size: devices.Size(n)}}}}
}

// key returns a key that only this user has.
func (w *heldUser) key(name string) []string {
	return []string{fmt.Sprintf("%s-%s-%s", filepath.Base(filepath.Dir(w.dir)), filepath.Base(w.dir), name)}
}

// fill puts fresh bytes into the memory of a session.
func (w *heldUser) fill(s *heldSession) (off, n int, data []byte) {
	n = 1 + w.rng.IntN(100_000)
	off, data = w.rng.IntN(heldBytes-n), w.fresh(n)
	copy(s.memory[off:], data)
	return off, n, data
}

// get reads a key by a session, and compares.
func (w *heldUser) get(s *heldSession, key []string, want []byte) error {
	off := w.rng.IntN(heldBytes - len(want))
	clear(s.memory[off : off+len(want)])
	_, err := s.DevMGet(context.Background(), key, s.list(off, len(want)), hetero.GetOptions{})
	return errors.Join(err, kit.Same(key[0], s.memory[off:off+len(want)], want))
}

// keys sets keys, which another session reads and removes.
func (w *heldUser) keys() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key := context.Background(), w.key(fmt.Sprint(w.round))
	off, n, data := w.fill(a)
	there := func(want bool) error {
		found, err := b.Exist(ctx, key)
		if err == nil && found[0] != want {
			err = fmt.Errorf("%s exists: %v", key[0], found[0])
		}
		return err
	}
	remover := []func(context.Context, []string) (hetero.Results, error){b.DevDelete, a.DevDelete, a.DevLocalDelete}[w.rng.IntN(3)]
	return inOrder(
		func() error { _, err := a.DevMSet(ctx, key, a.list(off, n)); return err },
		func() error { return there(true) },
		func() error { return w.get(b, key, data) },
		func() error { _, err := remover(ctx, key); return err },
		func() error { return there(false) },
	)
}

// standing reads keys that were set once, and whose memory changes.
func (w *heldUser) standing() error {
	const many = 16
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	size := heldBytes / many
	i := w.rng.IntN(many)
	if w.round == 0 {
		for i := range many {
			if _, err = a.DevMSet(context.Background(), w.key(fmt.Sprint(i)), a.list(i*size, size)); err != nil {
				return err
			}
		}
	}
	data := w.fresh(size)
	copy(a.memory[i*size:], data)
	return w.get(b, w.key(fmt.Sprint(i)), data)
}

// handOver publishes memory, which another session receives, once.
func (w *heldUser) handOver() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key := context.Background(), w.key(fmt.Sprint(w.round%3))
	off, n, data := w.fill(a)
	to := w.rng.IntN(heldBytes - n)
	clear(b.memory[to : to+n])
	var offered, coming []*hetero.Future
	publish := func() (err error) { offered, err = a.DevPublish(ctx, key, a.list(off, n)); return err }
	subscribe := func() (err error) {
		coming, err = b.DevSubscribe(ctx, key, b.list(to, n), hetero.SubscribeOptions{Timeout: time.Minute})
		return err
	}
	first, second := publish, subscribe
	if w.rng.IntN(2) == 0 {
		first, second = subscribe, publish
	}
	late, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return inOrder(
		first, second,
		func() error { return coming[0].Wait(late) }, func() error { return offered[0].Wait(late) },
		func() error { return kit.Same(key[0], b.memory[to:to+n], data) },
	)
}

// appear waits for a key before it is set.
func (w *heldUser) appear() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key := context.Background(), w.key(fmt.Sprint(w.round))
	came := make(chan error, 1)
	go func() {
		_, err := b.Wait(ctx, key, false, time.Minute)
		came <- err
	}()
	off, n, data := w.fill(a)
	<-time.After(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	return inOrder(
		func() error { _, err := a.DevMSet(ctx, key, a.list(off, n)); return err },
		func() error { return <-came },
		func() error { return w.get(b, key, data) },
		func() error { _, err := a.DevDelete(ctx, key); return err },
	)
}

// copies sets keys that are copies in host memory.
func (w *heldUser) copies() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key := context.Background(), w.key("copy")
	off, n, data := w.fill(a)
	return inOrder(
		func() error {
			_, err := a.MSetD2H(ctx, key, a.list(off, n), hetero.SetOptions{Existing: hetero.ExistingReplace, TTL: time.Hour})
			return err
		},
		func() error { return w.get(b, key, data) },
		func() error { _, err := b.Expire(ctx, key, time.Hour); return err },
		func() error {
			infos, err := b.GetMetaInfo(ctx, key, false)
			if err == nil && infos[0].Size != devices.Size(n) {
				err = fmt.Errorf("%s has %d bytes, and not %d", key[0], infos[0].Size, n)
			}
			return err
		},
	)
}

// values sets a value, which another session gets: one that a slot has room for, or a larger one.
func (w *heldUser) values() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key, data := context.Background(), w.key("value")[0], w.fresh(1+w.rng.IntN(100_000))
	if err = a.Set(ctx, key, data, hetero.SetOptions{TTL: time.Hour}); err != nil {
		return err
	}
	got, err := b.Get(ctx, key)
	return errors.Join(err, kit.Same(key, got, data))
}

// memory registers memory for each round.
func (w *heldUser) memory() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, key, data := context.Background(), w.key("memory"), w.fresh(10_000)
	bytes, id, err := a.register(len(data))
	if err != nil {
		return err
	}
	copy(bytes, data)
	err = inOrder(
		func() error {
			_, err = a.DevMSet(ctx, key, []hetero.DeviceBlobList{{Device: a.device, Blobs: []hetero.Blob{{Memory: id, Size: devices.Size(len(data))}}}})
			return err
		},
		func() error { return w.get(b, key, data) },
		func() error { return a.Unregister(ctx, id) },
		func() error {
			found, failure := b.Exist(ctx, key)
			if failure == nil && found[0] {
				failure = fmt.Errorf("%s outlives its memory", key[0])
			}
			return failure
		},
	)
	return errors.Join(err, unix.Munmap(bytes))
}

// bound makes memory of this process the content of a file.
func (w *heldUser) bound() error {
	const size = 1 << 16
	name := filepath.Join(w.dir, "bound")
	if w.file == nil {
		fd, err := unix.MemfdCreate("bound", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		w.file = os.NewFile(uintptr(fd), "memfd:bound")
		if err = w.file.Truncate(size); err != nil {
			return err
		}
		first := 0
		err = inOrder(func() error { return kit.WriteNew(name, nil) }, func() error {
			_, err = client.Bind(context.Background(), name, share.Memory{
				Family: "host", PID: os.Getpid(), Size: size, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: size}},
			}, w.file)
			return err
		})
		if err != nil {
			return err
		}
	}
	data, got := w.fresh(size), make([]byte, size)
	if _, err := w.file.WriteAt(data, 0); err != nil {
		return err
	}
	return inOrder(
		func() (err error) { got, err = os.ReadFile(name); return err },
		func() error { return kit.Same(name, got, data) },
		func() error { data = w.fresh(size); return overwrite(name, data) },
		func() error { got = make([]byte, size); _, err := w.file.ReadAt(got, 0); return err },
		func() error { return kit.Same("the memory of "+name, got, data) },
	)
}

// watch waits for the events of a key.
func (w *heldUser) watch() error {
	a, b, err := w.sessions()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if w.events == nil {
		if w.events, err = client.New(w.socket).Watch(ctx); err != nil {
			return err
		}
	}
	key := w.key(fmt.Sprint(w.round))
	off, n, data := w.fill(a)
	return inOrder(
		func() error { _, err = a.DevMSet(ctx, key, a.list(off, n)); return err },
		func() error { return w.get(b, key, data) },
		func() error { return w.await(ctx, "created", key[0]) },
		func() error { _, err = b.DevDelete(ctx, key); return err },
		func() error { return w.await(ctx, "removed", key[0]) },
	)
}

// await waits for an event, or for one that says that some are missing.
func (w *heldUser) await(ctx context.Context, kind, key string) error {
	for {
		e, err := w.events.Next(ctx)
		if err != nil || e.Kind == "dropped" || e.Kind == kind && e.Key == key {
			return err
		}
	}
}

// files uses files through a session, and one that is open all the time.
func (w *heldUser) files() error {
	a, _, err := w.sessions()
	if err != nil {
		return err
	}
	files, dir := a.Files(), filepath.Join("sim0", filepath.Base(w.dir))
	if w.open == nil {
		if w.open, err = files.Create(dir+"/open", 0o600); err != nil {
			return err
		}
	}
	one, two, sub := dir+"/one", dir+"/two", fmt.Sprintf("%s/%d", dir, w.round)
	data, got := w.fresh(1+w.rng.IntN(100_000)), []byte(nil)
	return inOrder(
		func() error { _, err := w.open.WriteAt(data, 100); return err },
		func() error { got = make([]byte, len(data)); _, err := w.open.ReadAt(got, 100); return err },
		func() error { return kit.Same(w.open.Name(), got, data) },
		func() error { return files.Mkdir(sub, 0o700) }, func() error { return files.WriteFile(one, data, 0o600) },
		func() error { return files.Rename(one, two) },
		func() (err error) { got, err = files.ReadFile(two); return err },
		func() error { return kit.Same(two, got, data) },
		func() error { return files.Remove(two) }, func() error { return files.Remove(sub) },
	)
}

// overwrite writes to the start of a file.
func overwrite(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

// leave ends the sessions.
func (w *heldUser) leave() error {
	var errs []error
	if w.events != nil {
		errs = append(errs, w.events.Close())
	}
	if w.open != nil {
		errs = append(errs, w.open.Close())
	}
	for _, s := range w.own {
		errs = append(errs, s.Close())
		if s.memory != nil {
			errs = append(errs, unix.Munmap(s.memory))
		}
	}
	return errors.Join(errs...)
}
