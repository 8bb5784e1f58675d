package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// exporting returns the present export, or nil.
func (o *object) exporting() *export {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.export
}

// exported returns the length of the exported range, which starts at offset 0.
func (o *object) exported() uint64 {
	if e := o.exporting(); e != nil {
		return e.length
	}
	return 0
}

// endExport ends the export, if there is one. The memory stays where it is. The caller
// has the lane, or the only reference to the object.
func (o *object) endExport() error {
	o.mu.Lock()
	e := o.export
	o.export = nil
	if x, ok := o.body.(*content.Extents); ok && e != nil {
		x.Pin(0)
	}
	if !isBound(o.body) {
		o.foreign.Store(false)
	}
	o.mu.Unlock()
	if e == nil {
		return nil
	}
	o.version.Add(2) // data read ahead before may be older
	for _, cancel := range e.holders {
		cancel()
	}
	if e.kind == devices.HandleMemfd {
		o.table.shared.add(e.file, -1)
	}
	return e.handle.Close()
}

// release releases everything that is held for, or borrowed from, other processes.
func (o *object) releaseShared() error {
	err := o.endExport()
	switch b := o.content().(type) {
	case *content.Bound:
		b.End()
	case *content.Extents:
		b.DropWholes()
	case *content.HostFile:
		err = errors.Join(err, b.Backing().Close())
	}
	return err
}

// mayCut fails if bytes after size are exported. Content of a device that has lost its
// memory may be truncated all the same: its export refers to nothing.
func (o *object) mayCut(size uint64) error {
	length := o.exported()
	if size >= length {
		return nil
	}
	if x, ok := o.content().(*content.Extents); ok && x.CheckEpoch() != nil {
		return o.endExport()
	}
	return fmt.Errorf("can't truncate an object to %d bytes while %d are exported; end the export first: %w", size, length, ErrBusy)
}

// mayPunch fails if bytes from off on are exported.
func (o *object) mayPunch(off uint64) error {
	if length := o.exported(); off < length {
		return fmt.Errorf("can't punch a hole at offset %d while the first %d bytes are exported: %w", off, length, ErrBusy)
	}
	return nil
}

// mayGo fails if the memory would be freed while another process has it mapped: handles
// that are not descriptors don't keep it.
func (o *object) mayGo() error {
	if e := o.exporting(); e != nil && e.kind == devices.HandleIPC {
		return fmt.Errorf("it is exported as %s, and its freed memory could go to another object; end the export first: %w", e.kind, ErrBusy)
	}
	return nil
}

// export is memory of an object that other processes may have mapped. The
// object's mu guards it.
type export struct {
	kind   devices.HandleKind
	length uint64 // of the object, from its start
	// handle stays open as long as the export lasts: other processes find its descriptor
	// under this process.
	handle devices.Handle
	file   owner.FileID // of the exported descriptor of host memory
	// lasting marks an export that does not end with a process.
	lasting bool
	// holders are the processes for which it lasts, with the functions that end their
	// watch.
	holders map[owner.ID]func()
	// sessions counts the sessions for which it lasts.
	sessions int
}

// held reports whether the export still lasts for a holder. The caller has the object's
// mu.
func (e *export) held() bool { return e.lasting || len(e.holders) > 0 || e.sessions > 0 }
