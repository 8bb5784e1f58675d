package perf

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// bounce is host memory at both ends, used by OpBounce as a bounce buffer.
type bounce struct {
	memory     *memory
	descriptor wire.Descriptor
}

// openBounce allocates such memory at both ends.
func (p *pair) openBounce(ctx context.Context, n devices.Size) (err error) {
	if p.bounce.memory, err = p.take(ctx, Host, n); err != nil {
		return err
	}
	p.bounce.descriptor, err = p.askMemory(ctx, ask{Do: askBounce, Size: n})
	return err
}

// bouncedPut executes one OpBounce: it copies all bytes to host memory, puts them to the
// server's host memory, and then has the server copy them to their destination.
func (p *pair) bouncedPut(ctx context.Context, row Row) error {
	host := p.bounce.memory.buffer
	for range row.Depth {
		if err := p.buffer.Load(ctx, transport.HostSpan(host.Host(0, row.Bytes)), 0); err != nil {
			return err
		}
		if err := p.comm.Put(ctx, serverRank, comm.Op{Local: host, Remote: p.bounce.descriptor, Size: row.Bytes}); err != nil {
			return err
		}
		if err := p.comm.SendTag(ctx, serverRank, wire.Tag(row.Bytes)); err != nil {
			return err
		}
		tag, err := p.comm.RecvTag(ctx, serverRank)
		if err == nil && tag != wire.Tag(row.Bytes) {
			err = fmt.Errorf("the server has stored %d bytes", tag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// store copies bytes from host memory to the open memory, once for each tag that it
// receives, and sends the tag back.
func (g *servedRunner) store(ctx context.Context, size devices.Size, count int) error {
	if g.bounce == nil || size > g.bounce.buffer.Size() {
		return errors.New("there is no bounce memory")
	}
	for range count {
		tag, err := g.comm.RecvTag(ctx, runnerRank)
		if err != nil {
			return err
		}
		if err = g.memory.buffer.Store(ctx, 0, transport.HostSpan(g.bounce.buffer.Host(0, size))); err != nil {
			return err
		}
		if err = g.comm.SendTag(ctx, runnerRank, tag); err != nil {
			return err
		}
	}
	return nil
}
