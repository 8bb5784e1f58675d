package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport/wire"
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
	// words are the number of the file, 0 for none, and the rank of the node for each handle.
	words memfd.Words
	file  *os.File

	mu sync.Mutex
	// +checklocks:mu
	at map[*handle]int
	// +checklocks:mu
	free []int
	// awaited are the files of the list that was left, with their places in it.
	// +checklocks:mu
	awaited map[opening][]awaited
}

// opening is a file that a node has open.
type opening struct {
	ino  objects.Ino
	rank wire.Rank
}

type awaited struct {
	file *objects.File
	at   int
}

// The words of a place in the list, and the size of the list in bytes.
const (
	inoWord = iota
	rankWord
	placeWords
	elsewhereSize = 8 * placeWords * mostElsewhere
)

// KeepElsewhere starts the list. With resume it continues the one that an earlier process has left, and opens its files.
func KeepElsewhere(ctx context.Context, k devices.DescriptorStore, resume bool, store *objects.Store, log *zap.Logger) (*Elsewhere, error) {
	e := &Elsewhere{log: log, at: map[*handle]int{}, awaited: map[opening][]awaited{}}
	err := e.find(k, resume)
	if err == nil {
		e.words, err = memfd.MapWords(e.file, 0, placeWords*mostElsewhere)
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
			if memfd.Check(f, elsewhereSize) == nil {
				e.file = f
				return nil
			}
			if err = f.Close(); err != nil { // another version has made it
				return err
			}
		}
	}
	var err error
	if e.file, err = memfd.Create("hmcfs-opened", elsewhereSize); err != nil {
		return err
	}
	return k.Keep(elsewhereName, e.file)
}

// openAgain opens the files of the list.
func (e *Elsewhere) openAgain(ctx context.Context, store *objects.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for at := mostElsewhere - 1; at >= 0; at-- {
		of := opening{objects.Ino(e.word(at, inoWord).Load()), wire.Rank(e.word(at, rankWord).Load())}
		if of.ino == 0 {
			e.free = append(e.free, at)
			continue
		}
		f, err := store.OpenFile(ctx, of.ino)
		if err != nil { // the node is told when it asks for it
			e.log.Debug("a file that another node had open could not be opened again", zap.Uint64("ino", uint64(of.ino)), zap.Error(err))
			e.clearLocked(at)
			continue
		}
		e.awaited[of] = append(e.awaited[of], awaited{f, at})
	}
}

func (e *Elsewhere) word(at, n int) *atomic.Uint64 { return e.words.At(placeWords*at + n) }

// +checklocks:e.mu
func (e *Elsewhere) clearLocked(at int) {
	e.word(at, inoWord).Store(0)
	e.free = append(e.free, at)
}

// add records a handle that is about to be given to a node.
func (e *Elsewhere) add(by wire.Rank, h *handle) {
	if e == nil || h.end != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.free); n > 0 {
		at := e.free[n-1]
		e.free = e.free[:n-1]
		e.word(at, rankWord).Store(uint64(by))
		e.word(at, inoWord).Store(uint64(h.file.Ino()))
		e.at[h] = at
	}
}

// added ends the wait for a handle, if the node had one of the file when the process before died. Its next one opens these before
// others.
func (e *Elsewhere) added(ctx context.Context, by wire.Rank, h *handle) {
	if e == nil || h.end != nil {
		return
	}
	of := opening{h.file.Ino(), by}
	e.mu.Lock()
	defer e.mu.Unlock()
	if waits := e.awaited[of]; len(waits) > 0 {
		e.endLocked(ctx, waits[0])
		if e.awaited[of] = waits[1:]; len(waits) == 1 {
			delete(e.awaited, of)
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
	for of, waits := range e.awaited {
		for _, a := range waits {
			e.endLocked(ctx, a)
		}
		delete(e.awaited, of)
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
