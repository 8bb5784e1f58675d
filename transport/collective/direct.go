package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// directPath executes calls of ranks on one host directly in shared buffers. It belongs to
// one group; Group.mu guards it.
type directPath struct {
	*slots
	shares *shares
	pass   *passPath
	exec   *executor
}

// do executes a call in the memory of all ranks. mapped is false, at all ranks, if the
// memory of one is not mapped.
func (d *directPath) do(ctx context.Context, r *running, w *way) (mapped bool, err error) {
	x := d.exec
	if !r.resumed {
		x.begin(work{task: &r.task, prog: w.prog, memory: [4][]byte{plan.Source: r.source.bytes, plan.Result: r.result.bytes}})
	}
	if x.phase == 0 {
		if err = d.introduce(ctx, r); err != nil {
			return false, err
		}
		x.phase = 1
		if mapped, err = d.borrow(r, w.prog.element); !mapped {
			return false, err
		}
	}
	err = x.run(ctx)
	r.report.note(x.count, "direct")
	return true, err
}

// introduce describes our memory, and waits for the descriptors of all other ranks.
func (d *directPath) introduce(ctx context.Context, r *running) error {
	if !d.sync.entered {
		p := d.stamp(r.task.Count)
		d.shares.locate(p[16:], r.source.view)
		d.shares.locate(p[32:], r.result.view)
		p[48] = 2 * d.pass.state()
		if r.source.staged || r.result.staged {
			p[48]++
		}
	}
	return d.sync.sync(ctx, d.exec.phase)
}

// borrow finds the memory of all ranks.
func (d *directPath) borrow(r *running, size uint64) (bool, error) {
	mapped := true
	r.unseen, r.apart = false, false
	state := d.pass.state()
	peers := d.exec.folder.peers
	for i := range peers {
		of := plan.Rank(i)
		p, err := d.described(of, r.task.Count)
		if err != nil {
			return false, err
		}
		src, one, err := d.shares.read(of, p[16:], r.task.SourceLen(of)*size)
		if err != nil {
			return false, err
		}
		dst, two, err := d.shares.read(of, p[32:], r.task.ResultLen(of)*size)
		if err != nil {
			return false, err
		}
		peers[i] = [4][]byte{plan.Source: src, plan.Result: dst}
		mapped = mapped && one && two
		r.unseen = r.unseen || p[48]%2 != 0
		r.apart = r.apart || p[48]/2 != state
	}
	return mapped, nil
}
