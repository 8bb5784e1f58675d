package control

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/internal/seal"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Data that arrived before a link's end is received, even if it has not been read
// from the socket, because the holder of the turn to read was busy.
func TestUnreadAtTheEnd(t *testing.T) {
	kit.Check(t)
	a, b := links(t, Address{TCP, "127.0.0.1:0"})
	ctx := within(t)
	const tags = 10
	taken, closed := false, make(chan struct{})
	hold := func() bool {
		taken = true
		for i := range wire.Tag(tags) {
			if err := a.SendTag(ctx, i); err != nil {
				t.Error(err)
			}
		}
		kit.Eventually(t, patience, func() bool { return b.conn.unread() == tags*(wire.TagFrameSize+seal.Overhead) })
		go func() {
			b.Close()
			close(closed)
		}()
		<-b.Stopping()
		return false
	}
	ready := make(chan struct{})
	close(ready)
	for !taken {
		if err := a.SendTag(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := b.RecvTag(ctx); err != nil {
			t.Fatal(err)
		}
		turn.Receive(ctx, b.turn, ready, nil, hold)
	}
	<-closed
	for i := range wire.Tag(tags) {
		if tag, err := b.RecvTag(ctx); tag != i || err != nil {
			t.Errorf("tag %d: %d, %v", i, tag, err)
		}
	}
	if _, err := b.RecvTag(ctx); !errors.Is(err, ErrDisconnected) {
		t.Errorf("behind the last: %v", err)
	}
}
