package cli

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// far is what is published on other nodes, where the mount has any.
type far struct{ c hetero.Client }

// openFar begins to receive from other nodes; nil where there are none.
func (a *app) openFar(ctx context.Context, m place.Mount) (*far, error) {
	if _, err := os.Stat(filepath.Join(m.MountPoint, nodesDir)); err != nil {
		return nil, nil // a mount of its own has no such directory
	}
	c, err := a.openKeys(ctx, m)
	if err != nil {
		return nil, err
	}
	return &far{c: c}, nil
}

// close ends it. What is under way is given back.
func (f *far) close() {
	if f != nil {
		_ = f.c.Close() // it holds nothing
	}
}

// published reports which keys are published on another node, or here.
func (f *far) published(ctx context.Context, keys []string) []bool {
	out := make([]bool, len(keys))
	if len(keys) == 0 {
		return out
	}
	infos, _ := f.c.GetMetaInfo(ctx, keys, true) // each key has its own error; none are known without an answer
	for i := range infos {
		out[i] = infos[i].Err == nil
	}
	return out
}

// farStream is a stream of events, and of publications of other nodes.
type farStream struct {
	eventStream

	came chan keyEvent
	err  chan error
	end  context.CancelFunc
}

// listenAll is listen that also tells which of some keys come to other nodes.
func (a *app) listenAll(ctx context.Context, m place.Mount, keys []string) (eventStream, error) {
	f, err := a.openFar(ctx, m)
	if err != nil {
		return nil, err
	}
	here, err := a.listen(ctx, m)
	if err != nil || f == nil {
		f.close()
		return here, err
	}
	return &ownFar{eventStream: f.stream(ctx, keys, false, here), far: f}, nil
}

// ownFar is a stream that ends its own session.
type ownFar struct {
	eventStream

	far *far
}

// Close ends both.
func (s *ownFar) Close() error {
	defer s.far.close()
	return s.eventStream.Close()
}

// stream has keys of other nodes, or their publications, come among the events
// of this one.
func (f *far) stream(ctx context.Context, keys []string, published bool, local eventStream) eventStream {
	ctx, end := context.WithCancel(ctx)
	s := &farStream{eventStream: local, came: make(chan keyEvent), err: make(chan error, 1), end: end}
	go s.follow(ctx)
	for _, share := range shares(keys) {
		go f.watch(ctx, share, published, s.came)
	}
	return s
}

// maxWatches is how many groups of keys are waited for at a time.
const maxWatches = 16

// shares deals keys out.
func shares(keys []string) [][]string {
	out := make([][]string, min(len(keys), maxWatches))
	for i, key := range keys {
		out[i%len(out)] = append(out[i%len(out)], key)
	}
	return out
}

// follow hands on what happens here.
func (s *farStream) follow(ctx context.Context) {
	for {
		e, err := s.eventStream.Next(ctx)
		if err != nil {
			s.err <- err
			return
		}
		select {
		case s.came <- e:
		case <-ctx.Done():
			return
		}
	}
}

// watchFor is how long one call waits for a group of keys, and after how long
// one that is there is told of again.
const watchFor = 500 * time.Millisecond

// watch tells of keys that are there, or are published, here or anywhere.
func (f *far) watch(ctx context.Context, keys []string, published bool, came chan<- keyEvent) {
	kind := eventCreated
	if published {
		kind = eventPublished
	}
	pause := time.NewTicker(watchFor)
	defer pause.Stop()
	for ctx.Err() == nil {
		results, err := f.c.Wait(ctx, keys, published, watchFor)
		if err != nil && len(results) == 0 && ctx.Err() == nil {
			select { // the daemon says why in what comes next
			case <-pause.C:
			case <-ctx.Done():
			}
		}
		told := false
		for _, r := range results {
			if r.Err != nil {
				continue
			}
			told = true
			select {
			case came <- keyEvent{Kind: kind, Key: r.Key}:
			case <-ctx.Done():
				return
			}
		}
		if told {
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	}
}

// Next waits for the next event of either.
func (s *farStream) Next(ctx context.Context) (keyEvent, error) {
	select {
	case e := <-s.came:
		return e, nil
	case err := <-s.err:
		return keyEvent{}, err
	case <-ctx.Done():
		return keyEvent{}, ctx.Err()
	}
}

// Close ends both.
func (s *farStream) Close() error {
	s.end()
	return s.eventStream.Close()
}
