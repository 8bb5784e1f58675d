package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// Sums returns the SHA-256 sums of n blocks of the file, like SumsOf; the owner computes them.
func (f *File) Sums(ctx context.Context, block, from uint64, n int) ([]byte, error) {
	var out proto.SumsAnswer
	err := f.ask(ctx, true, func(handle uint64) question {
		return question{method: proto.MethodSums, out: &out, in: &proto.SumsAsk{Handle: handle, Block: block, From: from, N: uint32(n)}}
	})
	if err == nil && (len(out.Sums)%sha256.Size != 0 || len(out.Sums) > n*sha256.Size) {
		err = fmt.Errorf("node %s sent checksums of %d bytes for %d blocks: %w", f.n.name, len(out.Sums), n, proto.ErrBody)
	}
	return out.Sums, err
}

// sums returns the checksums of blocks of a file.
func (s *server) sums(ctx context.Context, g *servedSession, q *proto.SumsAsk) (any, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	h, err := g.use(q.Handle, objects.PermRead)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	out := &proto.SumsAnswer{Size: h.file.Size()}
	if out.Sums, err = SumsOf(ctx, h.file, q.Block, q.From, int(q.N)); err != nil {
		return nil, err
	}
	return out, nil
}

// SumsOf returns the concatenated SHA-256 sums of n blocks of a file; fewer at its end, where
// the last block may be short.
func SumsOf(ctx context.Context, f *objects.File, block, from uint64, n int) ([]byte, error) {
	p := make([]byte, min(block, sumAtOnce))
	var all []byte
	for i := range n {
		h := sha256.New()
		got, err := sumBlock(ctx, h, f, p, (from+uint64(i))*block, block)
		if err != nil {
			return nil, err
		}
		if got == 0 {
			break
		}
		all = h.Sum(all)
	}
	return all, nil
}

// sumAtOnce bounds the bytes of a block that are in memory at once, since there may be many
// concurrent requests.
const sumAtOnce = 1 << 20

// sumBlock adds a block, or as much of it as exists, to the hash, using p as the buffer.
func sumBlock(ctx context.Context, h hash.Hash, f *objects.File, p []byte, off, block uint64) (done uint64, err error) {
	for done < block {
		// A hole is read without checking the context.
		if err = ctx.Err(); err != nil {
			return done, err
		}
		want := p[:min(uint64(len(p)), block-done)]
		n, err := f.ReadAt(ctx, want, off+done)
		if err != nil && !errors.Is(err, io.EOF) {
			return done, err
		}
		_, _ = h.Write(want[:n]) // a hash takes everything
		done += uint64(n)
		if n < len(want) {
			break
		}
	}
	return done, nil
}
