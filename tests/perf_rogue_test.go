package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// rogue is a client that knows the secret and violates the protocol.
type rogue struct {
	at   control.Address
	opts control.Options
}

// dial makes one connection to the server.
func (r *rogue) dial(ctx context.Context, rank wire.Rank, want wire.Hello) (*control.Conn, error) {
	o := r.opts
	o.Rank = rank
	return control.Dial(ctx, r.at, o, want)
}

// thrownOut waits until the server has closed a connection.
func thrownOut(c *control.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(perfPatience)); err != nil {
		return errors.Join(err, c.Close())
	}
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(errors.New("the server keeps it"), c.Close())
	}
	return c.Close()
}

// opened makes a control connection, sends further bytes on it, and waits until it is closed.
func (r *rogue) opened(ctx context.Context, channels uint8, then []byte) error {
	c, err := r.dial(ctx, 9, wire.Hello{Role: wire.RoleControl, Channel: channels})
	if err != nil {
		return err
	}
	_, _ = c.Write(then) // the server may have closed the connection
	return thrownOut(c)
}

// refused checks that a connection was refused with a given error.
func (r *rogue) refused(ctx context.Context, rank wire.Rank, hello wire.Hello, want error) error {
	c, err := r.dial(ctx, rank, hello)
	if err == nil {
		return errors.Join(errors.New("it is let in"), c.Close())
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("refused otherwise: %w", err)
	}
	return nil
}

// joined opens a session, and checks that data connections with a wrong rank, session or channel
// are refused.
func (r *rogue) joined(ctx context.Context) error {
	c, err := r.dial(ctx, 9, wire.Hello{Role: wire.RoleControl, Channel: 2})
	if err != nil {
		return err
	}
	own := wire.Hello{Role: wire.RoleData, Session: c.Session}
	return errors.Join(
		r.refused(ctx, 8, own, control.ErrRefused),
		r.refused(ctx, 1, own, control.ErrRefused),
		r.refused(ctx, 9, wire.Hello{Role: wire.RoleData, Session: c.Session + 1}, control.ErrRefused),
		r.refused(ctx, 9, wire.Hello{Role: wire.RoleData, Session: c.Session, Channel: 200}, io.EOF),
		c.Close(),
	)
}

// frame returns a frame header with a length that exceeds what follows.
func frame(kind wire.Kind, length uint32, body ...byte) []byte {
	return append(wire.Header{Kind: kind, Length: length}.Append(nil), body...)
}

// TestPerfAmongRogues admits clients that know the secret and violate the protocol while a
// pair measures.
func TestPerfAmongRogues(t *testing.T) {
	kit.Check(t)
	ends := hereEnds(t)
	server, at := ends.listen(t, []string{"127.0.0.1:0"})
	text, err := os.ReadFile(ends.secret)
	must(t, err)
	r := &rogue{
		at:   control.Address{Network: control.TCP, Addr: at[0]},
		opts: control.Options{Secret: []byte(strings.TrimSpace(string(text)))},
	}
	runner := ends.start(t, ends.run, "run", append(endless("put"), "--transport", "tcp", at[0])...)
	runner.works(server)
	before, err := server.resident()
	must(t, err)
	control1 := wire.Hello{Role: wire.RoleControl, Channel: 1}
	for name, does := range map[string]func(ctx context.Context) error{
		"the server's own rank": func(ctx context.Context) error { return r.refused(ctx, 0, control1, control.ErrTaken) },
		"the runner's rank":     func(ctx context.Context) error { return r.refused(ctx, 1, control1, control.ErrTaken) },
		"another's session":     r.joined,
		"no more than control":  func(ctx context.Context) error { return r.opened(ctx, 16, nil) },
		"17 channels": func(ctx context.Context) error {
			return r.refused(ctx, 9, wire.Hello{Role: wire.RoleControl, Channel: 17}, io.EOF)
		},
		"4 GiB of proposals": func(ctx context.Context) error {
			return r.opened(ctx, 1, frame(wire.KindProposal, 1<<32-1, kit.Bytes(7, 0, 1<<16)...))
		},
		"a proposal of noise": func(ctx context.Context) error {
			return r.opened(ctx, 1, frame(wire.KindProposal, 512, kit.Bytes(8, 0, 512)...))
		},
		"a tag too early": func(ctx context.Context) error {
			return r.opened(ctx, 1, frame(wire.KindTag, 8, 1, 2, 3, 4, 5, 6, 7, 8))
		},
		"bye too early": func(ctx context.Context) error { return r.opened(ctx, 1, frame(wire.KindBye, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			rounds := 3
			if name == "no more than control" {
				rounds = 1 // each round lasts until the handshake times out
			}
			ctx, stop := context.WithTimeout(t.Context(), perfPatience)
			defer stop()
			for range rounds {
				var failed error
				kit.Eventually(t, perfPatience, func() bool {
					// The rank is free again as soon as its session has ended.
					failed = does(ctx)
					return !errors.Is(failed, control.ErrTaken)
				})
				if failed != nil {
					t.Error(failed)
				}
			}
		})
	}
	if runner.ended() {
		t.Errorf("the runner was disturbed: %s", runner.said.String())
	}
	after, err := server.resident()
	must(t, err)
	if after > before+16<<20 && !kit.Race() {
		t.Errorf("the server has %d MiB, and had %d", after>>20, before>>20)
	}
	runner.kill()
	server.says("rank 1")
	ends.measures(t, append(little(), "--transport", "tcp", at[0])...)
}
