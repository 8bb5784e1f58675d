package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// A Gather proceeds in chunks, each limited by both bounds: the records of one chunk
// are written while the bytes of the next are copied.
const (
	gatherKeys  = 256
	gatherBytes = 256 << 20
)

// keyedMode is the mode of a file that is made for a key.
const keyedMode = metadata.TypeRegular | 0o600

// Gather copies the blobs of each key, concatenated, into an object of the host tier.
// An object becomes visible with all its bytes; an object that it replaces is removed
// in the same transaction.
//
// Errors by key: metadata.ErrExist with ExistingFail; devices.ErrOutOfMemory;
// ErrForbidden for replacing an object that the holder's user may not write, and for
// all keys if the user may not make files in host memory; ErrInvalid for blobs that are
// not inside their regions; ErrLost for those of a region that has ended;
// metadata.ErrTooLarge for more blobs than the attribute can list; ErrUnsupported for
// all keys in a mount without host memory.
func (h *Holder) Gather(ctx context.Context, set []Keyed, o GatherOptions) []Gathered {
	out := make([]Gathered, len(set))
	g := &gathering{store: h.store, options: o, set: set, out: out, refused: make([]bool, len(set))}
	err := h.begin()
	if err == nil {
		g.tier, err = h.store.tiers.host()
	}
	if err == nil {
		g.place = placing{who: h.who, rule: o.Existing}
		g.place.dir, err = h.store.access.keysDirFor(ctx, h.who, g.tier)
	}
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	g.run(ctx)
	if o.Expires != (metadata.Timespec{}) {
		h.store.keyed.expiry.note(o.Expires)
	}
	return out
}

// gathering executes one call of Gather.
type gathering struct {
	store   *Store
	tier    *content.Tier
	place   placing
	options GatherOptions
	set     []Keyed
	out     []Gathered
	// refused marks the keys, by index, that were not granted: their outcome is already
	// set.
	refused []bool
}

// run processes the chunks in order.
func (g *gathering) run(ctx context.Context) {
	var recording sync.WaitGroup
	for from := 0; from < len(g.set); {
		to := g.chunk(from)
		claimed := g.claim(ctx, from, to)
		files := g.fill(ctx, from, to)
		recording.Wait()
		record := func() {
			g.record(ctx, files)
			claimed()
		}
		if from = to; from < len(g.set) {
			recording.Go(record)
		} else {
			record()
		}
	}
}

// chunk returns the end of the chunk that begins at from.
func (g *gathering) chunk(from int) int {
	var bytes uint64
	to := from
	for to < len(g.set) && to-from < gatherKeys && bytes < gatherBytes {
		for _, b := range g.set[to].Blobs {
			bytes += min(b.Len, gatherBytes)
		}
		to++
	}
	return to
}

// claim requests the keys from..to, so that no byte is copied for a key that another
// node has; such a key is treated like one that exists here. Call done when the others
// are recorded.
func (g *gathering) claim(ctx context.Context, from, to int) (done func()) {
	var keys []string
	var places []int
	for i := from; i < to; i++ {
		if key := g.set[i].Key; metadata.ValidKey(key) == nil {
			keys, places = append(keys, key), append(places, i)
		}
	}
	errs, done := g.store.claims.claim(ctx, SpaceKeys, keys)
	for i, err := range errs {
		if err == nil {
			continue
		}
		g.refused[places[i]] = true
		if one := &g.out[places[i]]; g.options.Existing == ExistingSkip && errors.Is(err, metadata.ErrExist) {
			one.Skipped = true
		} else {
			one.Err = fmt.Errorf("set key %q: %w", keys[i], err)
		}
	}
	return done
}

// gathered is a host file that has its bytes but no record yet.
type gathered struct {
	at   int // index in the set
	file metadata.NewFile
}

// fill makes the host files for the keys from..to that are to be set.
func (g *gathering) fill(ctx context.Context, from, to int) []gathered {
	made := make([]gathered, to-from)
	inos, err := g.store.meta.NewInos(ctx, to-from)
	workers := min(transferWorkers, max(1, g.bytes(from, to)/transferInline))
	inside := max(1, transferWorkers/max(1, min(workers, to-from)))
	try := func(ctx context.Context, i int) error {
		made[i].at = from + i
		one := &g.out[from+i]
		if g.refused[from+i] {
			return nil
		}
		if one.Err = err; err == nil {
			one.Skipped, one.Err = g.one(ctx, inos[i], &g.set[from+i], &made[i].file, inside)
		}
		return nil // the others go on
	}
	_ = Parallel(ctx, to-from, workers, try)
	for i := 0; workers > 1 && i < to-from; i++ {
		// Memory may have been short only because files were made concurrently. Retried
		// alone, each can use all of it.
		if errors.Is(g.out[from+i].Err, devices.ErrOutOfMemory) {
			_ = try(ctx, i)
		}
	}
	files := made[:0]
	for _, m := range made {
		if one := g.out[m.at]; one.Err == nil && !one.Skipped {
			files = append(files, m)
		}
	}
	return files
}

// bytes returns roughly how many bytes the keys from..to have, up to a bound.
func (g *gathering) bytes(from, to int) int {
	var sum uint64
	for i := from; i < to && sum < transferInline*transferWorkers; i++ {
		for _, b := range g.set[i].Blobs {
			sum += min(b.Len, transferInline*transferWorkers)
		}
	}
	return int(min(sum, transferInline*transferWorkers))
}

// one makes the host file of one key, unless the key is to be skipped.
func (g *gathering) one(ctx context.Context, ino Ino, k *Keyed, f *metadata.NewFile, workers int) (skip bool, err error) {
	size, err := checkBlobRanges(k.Blobs)
	if err == nil {
		err = metadata.ValidKey(k.Key)
	}
	if err != nil {
		return false, fmt.Errorf("key %q: %w", k.Key, err)
	}
	sizes := sizesOf(k.Blobs)
	text, err := blobsText(sizes)
	if err != nil {
		return false, err
	}
	// This precedes any copy; put decides again when the bytes are in place.
	if skip, err = g.store.keyed.decide(ctx, g.place, k.Key); skip || err != nil {
		return skip, err
	}
	if err = g.fits(size); err != nil {
		return false, fmt.Errorf("gather key %q: %w", k.Key, err)
	}
	path, err := g.copy(ctx, ino, k.Blobs, size, workers)
	if err != nil {
		return false, fmt.Errorf("gather key %q: %w", k.Key, err)
	}
	*f = metadata.NewFile{
		Ino: ino, Name: k.Key, Key: k.Key,
		Node: metadata.Node{Mode: keyedMode, UID: g.place.who.UID, GID: g.place.who.GID},
		Size: size, Allocated: size, Path: string(path), Expires: g.options.Expires,
	}
	if text != nil {
		f.Xattrs = map[string][]byte{xattrBlobs: text}
	}
	return false, nil
}

// fits refuses an object for which there is no room, before it takes the remaining
// memory from others. A small object is not checked: it fails during the copy.
func (g *gathering) fits(size uint64) error {
	if size <= content.MaxPiece {
		return nil // determining the free memory may take as long as the copy
	}
	u, err := g.tier.Usage()
	if err == nil && devices.Size(size) > u.Free {
		err = &devices.OutOfMemoryError{Device: devices.Name(g.tier.Name), Asked: devices.Size(size), Free: u.Free}
	}
	return err
}

// copy makes a host file of blobs. On failure it leaves none.
func (g *gathering) copy(ctx context.Context, ino Ino, blobs []Blob, size uint64, workers int) (path transport.Path, err error) {
	to, err := content.CreateHostFile(g.tier, g.store.engine, uint64(ino))
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, to.Backing().Close())
		if err != nil {
			g.remove(ino)
		}
	}()
	var end uint64
	parts := stretchesOf(blobs, func(i int) uint64 {
		off := end
		end += blobs[i].Len
		return off
	})
	paths := make([]transport.Path, len(parts))
	err = Parallel(ctx, len(parts), min(workers, int(1+size/transferInline)), func(ctx context.Context, i int) error {
		return copyStretch(ctx, to, parts[i], &paths[i])
	})
	if err != nil {
		return "", err
	}
	// A hole at the end has not extended the file.
	if paths[len(paths)-1] == "" {
		if err = to.Cut(ctx, size); err != nil {
			return "", err
		}
	}
	for _, p := range paths {
		if p != "" {
			path = p
		}
	}
	return path, nil
}

// copyStretch copies a stretch of a region into a host file; a hole stays a hole. It
// sets path to that of the last bytes, or to "" if a hole is at the end.
func copyStretch(ctx context.Context, h *content.HostFile, part stretch, path *transport.Path) error {
	look := func(off, n uint64) (content.Range, error) { return part.region.find(ctx, off, n) }
	return copyAll(ctx, look, part.at, part.n, func(at content.Piece) (err error) {
		if *path = ""; !at.Hole {
			_, *path, err = h.Write(ctx, part.off+at.Off-part.at, at.Span)
		}
		return err
	})
}

// record makes the objects of host files, and removes the files for which that fails.
func (g *gathering) record(ctx context.Context, files []gathered) {
	news := make([]metadata.NewFile, len(files))
	for i := range files {
		news[i] = files[i].file
	}
	for i, p := range g.store.keyed.put(ctx, g.place, news) {
		one := &g.out[files[i].at]
		if p.Err != nil {
			p.Err = fmt.Errorf("record key %q: %w", news[i].Key, p.Err)
		}
		if one.Skipped, one.Err = p.Skipped, p.Err; p.Skipped || p.Err != nil {
			g.removeUnrecorded(ctx, news[i].Ino)
		}
	}
}

// removeUnrecorded removes the host file of an inode number that has no record: after a
// failed write it is uncertain whether there is one.
func (g *gathering) removeUnrecorded(ctx context.Context, ino Ino) {
	_, err := g.store.meta.Get(context.WithoutCancel(ctx), ino)
	if errors.Is(err, metadata.ErrNotExist) {
		g.remove(ino)
		return
	}
	g.store.log.Warn("host memory of an object whose creation is uncertain remains until the next mount",
		zap.Uint64("ino", uint64(ino)), zap.Error(err))
}

func (g *gathering) remove(ino Ino) {
	if err := content.RemoveHostFile(g.tier, g.store.engine, uint64(ino)); err != nil {
		g.store.log.Warn("could not remove the host memory of an object that was not created; it remains until the next mount",
			zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}
