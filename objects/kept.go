package objects

import (
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// keepLocked records the facts of an object in memory that outlives the process. It comes
// after every change of them. If the table of the device is full, the record alone has
// them.
//
// +checklocks:o.mu
func (o *object) keepLocked() {
	if x, ok := o.body.(*content.Extents); ok {
		if err := o.keepIn(x, o.facts); err != nil {
			o.table.log.Debug("could not keep the state of an object", zap.Uint64("ino", uint64(o.ino)), zap.Error(err))
		}
	}
}

// keepIn records facts with content that is the object's, or is about to be.
func (o *object) keepIn(x *content.Extents, f facts) error {
	return x.Keep(uint64(o.ino), f.kept(), true)
}

// ensureKept makes sure that the content about to be stored can be found by the process
// that follows. If fresh is set, the object has no content yet, and its record is about to
// say that it has: the entry is then dirty before, so that the record is never all that is
// left of the object.
//
// Errors: devices.ErrOutOfMemory.
func (o *object) ensureKept(body content.Content, fresh bool) error {
	x, ok := body.(*content.Extents)
	if !ok || !fresh && x.IsKept() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keepIn(x, o.facts)
}

func (f facts) kept() content.Facts {
	return content.Facts{Size: f.size, Atime: f.atime, Mtime: f.mtime, Ctime: f.ctime, Epoch: f.epoch}
}

// applyFacts writes the facts of a survivor to its record.
func applyFacts(in *metadata.Inode, f content.Facts) {
	in.Size, in.Atime, in.Mtime, in.Epoch = f.Size, f.Atime, f.Mtime, f.Epoch
	if f.Ctime.After(in.Ctime) {
		in.Ctime = f.Ctime
	}
}
