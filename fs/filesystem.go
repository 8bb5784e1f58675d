package fs

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport"
)

// filesystem answers the kernel's requests. Its methods run concurrently, on any goroutine.
type filesystem struct {
	unsupported
	replies
	invalidator
	sharing

	opts Options
	// tree has the files of this node and those of all others. store is this node's, for
	// operations that files of other nodes do not support or that concern this node alone.
	tree  *cluster.Mesh
	store *objects.Store
	slots *transport.SlotPool
	log   *zap.Logger
	errs  *errnoTable
	// born is the time shown for hmcfs's own directories.
	born metadata.Timespec
	// request is the largest request in bytes.
	request int

	ops      counters
	requests requests
	files    table[*fileHandle]
	mappable mappable
	dirs     table[*dirHandle]
	backings backings
	views    views
	shared   shared
	// otherKeys holds the symlinks of other nodes' keys, and creds the callers' groups,
	// which are sent to other nodes.
	otherKeys otherKeys
	creds     creds
	// guests are the users of Files.
	guests *guests
	ahead  aheadBudget
	// published holds the open files of publish/.
	published published
	fleeting  fleeting
	asked     asked
	// streams counts the handles of .hmcfs/events.
	streams streams
	// names is incremented before every change of a name, so that a page of a directory
	// read under an older number is known to be stale.
	names atomic.Uint64
	// statsLen is the length of .hmcfs/stats when it was last produced.
	statsLen atomic.Uint64
}

func newFilesystem(o Options) *filesystem {
	log := o.Logger.Named("fs")
	errs, born, visitors := newErrnoTable(log), metadata.TimespecOf(time.Now()), &guests{}
	keys := cluster.NewKeys(o.Store, o.Cluster)
	f := &filesystem{
		opts:      o,
		tree:      o.Tree,
		store:     o.Store,
		slots:     o.Engine.Slots(),
		log:       log,
		errs:      errs,
		born:      born,
		request:   int(o.MaxWrite),
		ahead:     aheadBudget{max: int64(maxAhead)},
		views:     newViews(o.Store),
		published: published{store: o.Store, errs: errs, wait: releaseWait},
		shared:    newShared(),
		fleeting:  fleeting{store: o.Store, inos: map[metadata.Ino]fleet{}, patience: leftFor},
		asked:     newAsked(),
		otherKeys: otherKeys{
			all: keys, store: o.Store, cluster: o.Cluster, errs: errs, born: born,
			seed: maphash.MakeSeed(), keys: map[metadata.Ino]*otherKey{},
		},
		guests:  visitors,
		creds:   creds{guests: visitors},
		sharing: sharing{store: o.Store, guests: visitors, log: log},
	}
	f.unsupported = unsupported{RawFileSystem: fuse.NewDefaultRawFileSystem(), ops: &f.ops}
	f.replies = replies{store: o.Store, timeout: keepFor(&o), backings: &f.backings, fleeting: &f.fleeting, guests: visitors}
	f.invalidator = invalidator{
		kernel: noKernel{}, store: o.Store, views: &f.views, shared: &f.shared, fleeting: &f.fleeting, names: &f.names,
	}
	f.backings.log = log
	f.backings.open = map[metadata.Ino]*backing{}
	return f
}

// String returns the filesystem's name for go-fuse's messages.
func (f *filesystem) String() string { return "hmcfs" }

// background returns the context of operations that must not be interrupted: namespace
// operations, which are short and must happen completely or not at all.
func background() context.Context { return context.Background() }

// closeHandles closes the handles that the kernel left open: it releases none when the
// connection is cut. Handles of other nodes are closed concurrently, as each may have to
// wait for a node that does not answer.
func (f *filesystem) closeHandles() {
	var others sync.WaitGroup
	for fh, h := range f.files.drain() {
		if h.isOther() {
			others.Go(func() { f.closeFile(h, fh) })
			continue
		}
		f.closeFile(h, fh)
	}
	for _, h := range f.dirs.drain() {
		h.close(f.store)
	}
	others.Wait()
	f.shared.close()
}
