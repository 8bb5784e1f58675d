package fs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// requestMemory is memory for a request. What executes it does not keep it.
type requestMemory struct {
	read   fuse.ReadIn
	write  fuse.WriteIn
	pieces [1][]byte
}

// requests has memory of requests that are over, for later ones. The zero value is ready to use.
type requests struct{ pool sync.Pool }

func (q *requests) get() *requestMemory {
	if r, ok := q.pool.Get().(*requestMemory); ok {
		return r
	}
	return &requestMemory{}
}

func (q *requests) put(r *requestMemory) {
	r.pieces[0] = nil
	q.pool.Put(r)
}
