package cluster

import (
	"context"
	"sync"

	"go.uber.org/zap"
)

// openFiles are the files of a node that are open on this node.
type openFiles struct {
	mu sync.Mutex
	// +checklocks:mu
	all map[*File]struct{}
}

func (o *openFiles) add(f *File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*File]struct{}{}
	}
	o.all[f] = struct{}{}
}

func (o *openFiles) remove(f *File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, f)
}

// reopen opens all files in a session that is not used yet. A daemon that continues a node does not know
// that they are open, so a request to remove a name, which may be the next one, would end the file. What
// can't be opened now is opened by its next call.
func (o *openFiles) reopen(ctx context.Context, s *session) {
	o.mu.Lock()
	queue := make(chan *File, len(o.all))
	for f := range o.all {
		queue <- f
	}
	o.mu.Unlock()
	close(queue)
	var opening sync.WaitGroup
	for range min(openAtOnce, len(queue)) {
		opening.Go(func() {
			for f := range queue {
				if err := f.reopenFirst(ctx, s); err != nil {
					f.n.c.log.Debug("a file that was open could not be opened again", zap.String("node", string(f.n.name)), zap.Error(err))
				}
			}
		})
	}
	opening.Wait()
}

// reopenFirst opens the file in a session that is not used yet, unless a call is about to do so.
func (f *File) reopenFirst(ctx context.Context, s *session) error {
	f.mu.Lock()
	if f.by != nil || f.closed || f.opening != nil {
		f.mu.Unlock()
		return nil
	}
	f.opening = make(chan struct{})
	f.mu.Unlock()
	return f.reopen(ctx, s, nil)
}
