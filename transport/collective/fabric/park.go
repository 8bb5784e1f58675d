package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Park waits until one of the links can make progress.
func (o *over) Park(ctx context.Context, want []Want) error {
	if !o.gate.Enter() {
		return ErrClosed
	}
	defer o.gate.Leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	s := o.spinner()
	for room := false; ; room = !room {
		if o.ready(want, room) {
			return nil
		}
		if !s.again() {
			break
		}
	}
	mine := o.states[o.me]
	before := mine.rung.Load()
	defer mine.asleep.Store(0)
	if slices.ContainsFunc(want, func(w Want) bool { return o.links[w.Peer].socket != nil }) {
		mine.asleep.Store(asleepInPoll)
		if o.stopped.Swap(false) || o.ready(want, false) {
			return nil
		}
		return o.poll(ctx, want)
	}
	mine.asleep.Store(asleepAtBell)
	if o.stopped.Swap(false) || o.ready(want, true) {
		return nil
	}
	return o.bells.sleep(ctx, before)
}

func (o *over) ready(want []Want, room bool) bool {
	for _, w := range want {
		if o.links[w.Peer].ready(w, room) {
			return true
		}
	}
	return false
}

// poll sleeps until a socket can make progress or another rank wakes us.
func (o *over) poll(ctx context.Context, want []Want) error {
	fds := append(o.polls[:0], unix.PollFd{Fd: int32(o.event), Events: unix.POLLIN})
	for _, w := range want {
		switch l := o.links[w.Peer]; {
		case l.socket != nil:
			fds = append(fds, l.socket.pollFd(w))
		case l.bell != nil:
			fds = append(fds, unix.PollFd{Fd: int32(l.bell.socket.fd), Events: unix.POLLIN})
		}
	}
	n, err := unix.Poll(fds, int(slice/time.Millisecond))
	switch {
	case err != nil && !errors.Is(err, unix.EINTR):
		return fmt.Errorf("fabric: sleep: %w", err)
	case n == 0 || err != nil:
		return ctx.Err()
	}
	if fds[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(o.event, count[:]) // only to reset it
	}
	i := 1
	for _, w := range want {
		switch l := o.links[w.Peer]; {
		case l.socket != nil:
			i++
		case l.bell != nil:
			if fds[i].Revents != 0 && l.bell.quiet() != nil {
				// It would wake us again at once, for ever. The bytes that the peer sent
				// before are in the ring.
				o.lose(w.Peer, errEnded)
			}
			i++
		}
	}
	return nil
}

// knock wakes a rank of this host that sleeps in poll.
func (o *over) knock(of plan.Rank) {
	if of == o.me {
		_, _ = unix.Write(o.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only if the counter is full: then we wake anyway
		return
	}
	if b := o.links[of].bell; b != nil {
		b.ring()
	}
}
