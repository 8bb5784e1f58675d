package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/objects"
)

const (
	// elsewhereName is the name under which a DescriptorStore has the files that other nodes have open.
	elsewhereName = "nodes/opened"
	// mostElsewhere bounds the files that are recorded.
	mostElsewhere = 1 << 14
)

// Elsewhere records which files of this node others have open, in memory that outlives this process. The files of the list that an
// earlier process has left are open until the nodes have opened them again: no name that is removed before ends one.
// Its methods may be called from any goroutine; those of nil do nothing.
type Elsewhere struct {
	log *zap.Logger
	// words are the numbers of the files, one for each handle; 0 is free.
	words memfd.Words
	file  *os.File

	mu sync.Mutex
	// +checklocks:mu
	at map[*handle]int
	// +checklocks:mu
	free []int
	// awaited are the files of the list that was left, with their places in it.
	// +checklocks:mu
	awaited map[objects.Ino][]awaited
}

type awaited struct {
	file *objects.File
	at   int
}

// KeepElsewhere starts the list. With resume it continues the one that an earlier process has left, and opens its files.
func KeepElsewhere(ctx context.Context, k devices.DescriptorStore, resume bool, store *objects.Store, log *zap.Logger) (*Elsewhere, error) {
	e := &Elsewhere{log: log, at: map[*handle]int{}, awaited: map[objects.Ino][]awaited{}}
	err := e.find(k, resume)
	if err == nil {
		e.words, err = memfd.MapWords(e.file, 0, mostElsewhere)
	}
	if err != nil {
		if e.file != nil {
			err = errors.Join(err, e.file.Close())
		}
		return nil, fmt.Errorf("list the files that other nodes have open: %w", err)
	}
	e.openAgain(ctx, store)
	return e, nil
}

// find sets the file to the one that an earlier process has left, or to a new one.
func (e *Elsewhere) find(k devices.DescriptorStore, resume bool) error {
	if resume {
		found, err := k.Kept(elsewhereName)
		if err != nil {
			return err
		}
		if f := found[elsewhereName]; f != nil {
			if memfd.Check(f, 8*mostElsewhere) == nil {
				e.file = f
				return nil
			}
			if err = f.Close(); err != nil { // another version has made it
				return err
			}
		}
	}
	var err error
	if e.file, err = memfd.Create("hmcfs-opened", 8*mostElsewhere); err != nil {
		return err
	}
	return k.Keep(elsewhereName, e.file)
}

// openAgain opens the files of the list.
func (e *Elsewhere) openAgain(ctx context.Context, store *objects.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for at := mostElsewhere - 1; at >= 0; at-- {
		ino := objects.Ino(e.words.At(at).Load())
		if ino == 0 {
			e.free = append(e.free, at)
			continue
		}
		f, err := store.OpenFile(ctx, ino)
		if err != nil { // the node is told when it asks for it
			e.log.Debug("a file that another node had open could not be opened again", zap.Uint64("ino", uint64(ino)), zap.Error(err))
			e.clearLocked(at)
			continue
		}
		e.awaited[ino] = append(e.awaited[ino], awaited{f, at})
	}
}

// +checklocks:e.mu
func (e *Elsewhere) clearLocked(at int) {
	e.words.At(at).Store(0)
	e.free = append(e.free, at)
}

// add records a handle that is about to be given to another node, and ends the wait for it.
func (e *Elsewhere) add(ctx context.Context, h *handle) {
	if e == nil || h.end != nil {
		return
	}
	ino := h.file.Ino()
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.free); n > 0 {
		at := e.free[n-1]
		e.free = e.free[:n-1]
		e.words.At(at).Store(uint64(ino))
		e.at[h] = at
	}
	if waits := e.awaited[ino]; len(waits) > 0 {
		e.endLocked(ctx, waits[0])
		if e.awaited[ino] = waits[1:]; len(waits) == 1 {
			delete(e.awaited, ino)
		}
	}
}

// remove ends the record of a handle that is closed.
func (e *Elsewhere) remove(h *handle) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.at[h]; ok {
		delete(e.at, h)
		e.clearLocked(at)
	}
}

// +checklocks:e.mu
func (e *Elsewhere) endLocked(ctx context.Context, a awaited) {
	e.clearLocked(a.at)
	a.file.Abandon(ctx)
}

// GiveUp ends the wait for nodes that have not opened their files again.
func (e *Elsewhere) GiveUp(ctx context.Context) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for ino, waits := range e.awaited {
		for _, a := range waits {
			e.endLocked(ctx, a)
		}
		delete(e.awaited, ino)
	}
}

// Close releases what KeepElsewhere has opened. The list stays for the process that follows, if one does.
func (e *Elsewhere) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, waits := range e.awaited {
		for _, a := range waits {
			a.file.Abandon(ctx)
		}
	}
	e.awaited, e.at, e.free = nil, nil, nil
	return errors.Join(e.words.Unmap(), e.file.Close())
}
