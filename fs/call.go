package fs

import (
	"context"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// isOwn reports whether an inode is one of this node's store that users may change.
func isOwn(ino metadata.Ino) bool { return !isReserved(ino) && !cluster.OfAnotherNode(ino) }

// hasViews reports whether files of a directory have views of their tensors: those of other
// nodes have none, and reading a published file would receive it.
func hasViews(dir metadata.Ino) bool {
	return dir != metadata.PublishIno && !cluster.OfAnotherNode(dir)
}

// call returns the context and the caller for a call of the tree about inodes. If one of the
// inodes belongs to another node, the context ends when the calling process is killed, and
// the caller includes its groups; otherwise the call is not interruptible. done must be
// called.
func (f *filesystem) call(cancel <-chan struct{}, header *fuse.InHeader, inos ...metadata.Ino) (ctx context.Context, who objects.Caller, done func()) {
	if slices.ContainsFunc(inos, cluster.OfAnotherNode) {
		ctx, done = untilKilled(cancel, header.Pid)
		return ctx, f.creds.of(&header.Caller), done
	}
	return background(), f.guests.callerOf(&header.Caller), nothingToDo
}

func nothingToDo() {}
