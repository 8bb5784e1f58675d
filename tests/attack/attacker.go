package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
)

// attacker is the process of one attacking user, with several threads.
type attacker struct {
	role
	say *speaker
	// socket is the path of the admin socket of the mount; empty if it was not found.
	socket string
	// stop is closed at the end of the attack.
	stop chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	tries map[string]tries
}

// hand is one thread of an attacker.
type hand struct {
	*attacker
	random *rand.Rand
	// name is part of the names that the thread creates; act is the name of the current
	// act.
	name, act string
}

// hands is the number of threads of an attacker.
const hands = 4

func newAttacker(r role, say *speaker) *attacker {
	return &attacker{role: r, say: say, stop: make(chan struct{}), tries: map[string]tries{}}
}

// work performs random acts until the input ends.
func (a *attacker) work(in io.Reader) error {
	if c, f, err := client.Find(a.Mount); err == nil {
		a.socket = c.Socket()
		if err = f.Close(); err != nil {
			return err
		}
	}
	var working sync.WaitGroup
	for i := range hands {
		h := &hand{
			attacker: a, random: rand.New(rand.NewPCG(a.Seed, uint64(i))), //nolint:gosec // the seed has it done again
			name: fmt.Sprintf("%s-%d", a.Name, i),
		}
		working.Go(func() {
			for {
				select {
				case <-a.stop:
					return
				case <-time.After(time.Duration(h.random.Int64N(int64(20 * time.Millisecond)))):
					h.try()
				}
			}
		})
	}
	_, err := io.Copy(io.Discard, in)
	close(a.stop)
	working.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say.say(word{Tries: a.tries})
	return err
}

// try performs one act in a new directory, which it removes afterwards.
func (h *hand) try() {
	all := acts()
	one := all[h.random.IntN(len(all))]
	h.act = one.name
	dir := filepath.Join(h.Mount, h.device(), "attackers", fmt.Sprintf("%s-%d", h.name, h.random.Uint32()))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = h.survive(func() error { return one.do(h, dir) })
	}
	h.count(err)
	h.act = "clean up"
	h.count(os.RemoveAll(dir))
}

// survive runs an act that may receive SIGBUS from a map of a truncated file.
func (h *hand) survive(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v", syscall.EFAULT, fault)
		}
	}()
	return do()
}

// device returns the directory of one of the four devices.
func (h *hand) device() string {
	d := [...]string{"host", "sim0"}[h.random.IntN(2)]
	if h.random.IntN(4) == 0 {
		return filepath.Join("nodes", h.Other, d)
	}
	return d
}

// count counts an attempt and its error.
func (h *hand) count(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tries[h.act]
	t.Tried++
	if err == nil {
		t.Done++
	} else {
		if t.Errors == nil {
			t.Errors = map[string]int{}
		}
		t.Errors[kindOf(err)]++
	}
	h.tries[h.act] = t
}

// kindOf returns the text of an error's errno, or a code for it.
func kindOf(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return string(refused.Code)
	}
	return "other"
}

// forbid reports a violation if a forbidden operation succeeded.
func (h *hand) forbid(what string, err error) error {
	if err == nil {
		h.say.violation("%s: uid %d was allowed to %s", h.act, os.Getuid(), what)
	}
	return err
}

// over reports whether the attack has ended; long acts check it.
func (h *hand) over() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// linger waits for a random time of up to most, or until the attack ends.
func (h *hand) linger(most time.Duration) {
	timer := time.NewTimer(time.Duration(h.random.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-h.stop:
	case <-timer.C:
	}
}

// spare reports a violation if a forbidden operation succeeded on a victim's file. If the
// victim has removed or renamed the file meanwhile, the name may refer to an attacker's own
// file; a loss is then detected by the victim.
func (h *hand) spare(path, what string, err error) error {
	var st unix.Stat_t
	if err == nil && unix.Stat(path, &st) == nil && int(st.Uid) == h.VictimUID {
		h.say.violation("%s: uid %d was allowed to %s %s", h.act, os.Getuid(), what, path)
	}
	return err
}

// prey returns the path of a victim's file in the shared directory of a device or in the
// victim's own; empty if none was found.
func (h *hand) prey() string {
	victim := h.Victims[h.random.IntN(len(h.Victims))]
	dir := filepath.Join(h.Mount, h.device(), [...]string{"shared", victim}[h.random.IntN(2)])
	names := h.victims(dir)
	if len(names) == 0 {
		return ""
	}
	path := filepath.Join(dir, names[h.random.IntN(len(names))])
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || int(st.Uid) != h.VictimUID {
		return ""
	}
	return path
}

// victims lists the names of victims in a directory.
func (h *hand) victims(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if victimOf(e.Name(), h.Victims) {
			names = append(names, e.Name())
		}
	}
	return names
}
