package control

import (
	"net"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// A link that ends in the middle of a message does not parse the rest of it as
// frames: its bytes are chosen by the peer's user.
func TestEndInTheMiddle(t *testing.T) {
	kit.Check(t)
	for name, at := range map[string]Address{"TCP": loopback(), "Unix": socket(t)} {
		t.Run(name, func(t *testing.T) {
			raw, conn := pairOver(t, at, options(1), options(0))
			defer func() { _ = raw.Close() }()
			l := link(t, conn)
			const forged = 20
			// The message ends in bytes that are frames of tags.
			body := kit.Bytes(1, 0, 100)
			for i := range wire.Tag(forged) {
				body = wire.AppendTag(body, i)
			}
			frame := append(wire.Header{Kind: wire.KindMessage, Length: uint32(len(body))}.Append(nil), body...)
			begin := wire.HeaderSize + 100
			write(t, raw, frame[:begin])
			kit.Eventually(t, patience, func() bool { return l.conn.unread() == 0 })
			l.Stop()
			write(t, raw, frame[begin:])
			<-l.Done()
			if tag, err := l.RecvTag(within(t)); err == nil {
				t.Errorf("tag %d, which nobody sent", tag)
			}
		})
	}
}

func write(t *testing.T, c net.Conn, p []byte) {
	t.Helper()
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
}
