package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// The limits of one call of d2h or h2d, so that the progress bar moves and few files are
// registered at a time.
const (
	moveKeys  = 128
	moveBytes = 256 * devices.MiB
)

// hostMove is one key of d2h or h2d: a file on a device, and the sizes of its blobs.
type hostMove struct {
	place  int
	file   *os.File
	device devices.Name
	sizes  []devices.Size
	// made is set if the file did not exist before.
	made bool
}

func (v *hostMove) size() devices.Size {
	var sum devices.Size
	for _, s := range v.sizes {
		sum += s
	}
	return sum
}

// list returns the file as blobs of registered memory.
func (v *hostMove) list(id hetero.MemoryID) hetero.DeviceBlobList {
	l := hetero.DeviceBlobList{Device: v.device, Blobs: make([]hetero.Blob, len(v.sizes))}
	off := devices.Offset(0)
	for i, size := range v.sizes {
		l.Blobs[i] = hetero.Blob{Memory: id, Off: off, Size: size}
		off += devices.Offset(size)
	}
	return l
}

// hostMoves moves keys between files on devices and host memory.
type hostMoves struct {
	c hetero.Client
	r *keyReport
	// call is MSetD2H or MGetH2D.
	call func(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error)
	// ended is called with the result of each move while the file is still open.
	ended func(v *hostMove, one hetero.Result)
}

// batches splits moves, by device, into calls of limited size.
func batches(moves []hostMove) [][]hostMove {
	var out [][]hostMove
	open := map[devices.Name]int{}
	sums := map[devices.Name]devices.Size{}
	for _, v := range moves {
		at, has := open[v.device]
		if !has || len(out[at]) == moveKeys || sums[v.device]+v.size() > moveBytes {
			at = len(out)
			out, open[v.device], sums[v.device] = append(out, nil), at, 0
		}
		out[at] = append(out[at], v)
		sums[v.device] += v.size()
	}
	return out
}

// run executes all moves, and closes their files.
func (h *hostMoves) run(ctx context.Context, moves []hostMove) {
	for _, v := range moves {
		h.r.bar.grow(int64(v.size()))
	}
	for _, batch := range batches(moves) {
		h.batch(ctx, batch)
	}
}

// batch executes one call, for moves on one device.
func (h *hostMoves) batch(ctx context.Context, moves []hostMove) {
	begun := time.Now()
	var keys []string
	var lists []hetero.DeviceBlobList
	var called []*hostMove
	var ids []hetero.MemoryID
	for i := range moves {
		v := &moves[i]
		id, err := h.c.PreRegister(ctx, hetero.Memory{Device: v.device, File: v.file})
		if err != nil {
			h.end(ctx, v, hetero.Result{Err: err}, 0)
			continue
		}
		ids, called = append(ids, id), append(called, v)
		keys, lists = append(keys, h.r.rows[v.place].Key), append(lists, v.list(id))
	}
	if len(called) > 0 {
		results, err := h.call(ctx, keys, lists)
		perByte := pace(called, time.Since(begun))
		for i, v := range called {
			one := hetero.Result{Key: keys[i], Err: err}
			if i < len(results) {
				one = results[i]
			}
			h.end(ctx, v, one, perByte)
		}
	}
	for _, id := range ids {
		// The session's end does it too.
		_ = h.c.Unregister(context.WithoutCancel(ctx), id)
	}
}

// pace returns the seconds per byte of a call.
func pace(moves []*hostMove, took time.Duration) float64 {
	var sum devices.Size
	for _, v := range moves {
		sum += v.size()
	}
	return took.Seconds() / float64(sum)
}

// end records the result of one move. A move that was interrupted by a signal gets no
// result.
func (h *hostMoves) end(ctx context.Context, v *hostMove, one hetero.Result, perByte float64) {
	if h.ended != nil {
		h.ended(v, one)
	}
	_ = v.file.Close() // it only identified the file
	if one.Err != nil && ctx.Err() != nil {
		return
	}
	row := &h.r.rows[v.place]
	if one.Err == nil && !one.Skipped {
		row.Bytes, row.Seconds = int64(v.size()), perByte*float64(v.size())
		h.r.bar.add(row.Bytes)
	}
	row.Skipped = one.Skipped
	h.r.settle(v.place, one.Err)
}

// parseBlobs parses the sizes of blobs, separated by commas.
func parseBlobs(text string) ([]devices.Size, error) {
	var out []devices.Size
	for one := range strings.SplitSeq(text, ",") {
		size, err := devices.ParseSize(strings.TrimSpace(one))
		if err == nil && size == 0 {
			err = errors.New("a blob has at least 1 byte")
		}
		if err != nil {
			return nil, fmt.Errorf("blobs %q: %w", text, err)
		}
		out = append(out, size)
	}
	return out, nil
}

// blobsText formats sizes for parseBlobs.
func blobsText(sizes []devices.Size) string {
	texts := mapped(sizes, func(s devices.Size) string { return strconv.FormatUint(uint64(s), 10) })
	return strings.Join(texts, ",")
}

// blobsOf returns the blob sizes of a file of a size: those requested, those of its
// attribute, or one blob.
func blobsOf(path string, size devices.Size, asked []devices.Size) ([]devices.Size, error) {
	if size == 0 {
		return nil, hinted(fmt.Errorf("%s is empty: %w", path, hetero.ErrInvalid), "a blob has at least 1 byte")
	}
	sizes := asked
	if text := xattr(path, blobsXattr); sizes == nil && text != "" {
		var err error
		if sizes, err = parseBlobs(text); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if sizes == nil {
		return []devices.Size{size}, nil
	}
	v := hostMove{sizes: sizes}
	if sum := v.size(); sum != size {
		return nil, hinted(fmt.Errorf("the blobs have %d bytes in all, but %s has %d: %w", sum, path, size, hetero.ErrShape),
			"give --blobs with sizes that add up to the size of the file")
	}
	return sizes, nil
}
