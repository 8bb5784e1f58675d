package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

const (
	// verifyBlock is how many bytes have one checksum.
	verifyBlock = uint64(devices.MiB)
	// verifyAtOnce is how many blocks a node is asked for at a time: what it
	// sums in a small part of the time that an answer may take.
	verifyAtOnce = 64
	// maxVerified is how many files are compared at most.
	maxVerified = 128
)

// Verify says whether files have the same bytes. Each node reads its own.
func (d *Daemon) Verify(ctx context.Context, by objects.Caller, files []*admin.Named) (adminapi.VerifyAnswer, error) {
	out := adminapi.VerifyAnswer{Equal: true, Block: devices.Size(verifyBlock), Different: []adminapi.Different{}}
	if len(files) == 0 || len(files) > maxVerified {
		return out, fmt.Errorf("%d files, can be 1 to %d: %w", len(files), maxVerified, objects.ErrInvalid)
	}
	o := &opened{d: d, by: by, ends: map[metadata.Ino]cluster.End{}}
	defer o.close(ctx)
	all := make([]verified, len(files))
	for i, f := range files {
		if f == nil {
			return out, rankFault(i, fmt.Errorf("no file: %w", objects.ErrInvalid))
		}
		ino, err := o.inoOf(ctx, f)
		if err == nil {
			all[i].end, err = o.open(ctx, ino, objects.PermRead)
		}
		if err == nil {
			all[i].size, err = sizeOf(ctx, all[i].end)
		}
		if err != nil {
			return out, rankFault(i, err)
		}
	}
	out.Size = devices.Size(all[0].size)
	if err := compare(ctx, all); err != nil {
		return out, err
	}
	for i, f := range all[1:] {
		if f.blocks > 0 || f.size != all[0].size {
			out.Equal = false
			out.Different = append(out.Different, adminapi.Different{
				File: i + 1, Size: devices.Size(f.size), Block: f.first, Blocks: f.blocks,
			})
		}
	}
	return out, nil
}

// verified is a file that is compared with the first one.
type verified struct {
	end  cluster.End
	size uint64
	// first is the first block that differs, blocks how many do.
	first, blocks uint64
}

// compare counts the blocks that differ.
func compare(ctx context.Context, all []verified) error {
	var longest uint64
	for i := range all {
		longest = max(longest, all[i].size)
	}
	for from := uint64(0); from*verifyBlock < longest; from += verifyAtOnce {
		data, err := nextData(ctx, all, from, longest)
		if err != nil {
			return err
		}
		for i := range all[1:] {
			all[i+1].skip(&all[0], from, data)
		}
		if from = data; from*verifyBlock >= longest {
			return nil
		}
		sums := make([][]byte, len(all))
		errs := make(chan error, len(all))
		for i := range all {
			go func() {
				var err error
				sums[i], err = all[i].sums(ctx, from)
				if err != nil {
					err = rankFault(i, err)
				}
				errs <- err
			}()
		}
		var failure error
		for range all {
			if err := <-errs; err != nil && failure == nil {
				failure = err
			}
		}
		if failure != nil {
			return failure
		}
		for i := range all[1:] {
			all[i+1].count(sums[0], sums[i+1], from)
		}
	}
	return nil
}

// nextData finds the first block at or behind from that has to be read: one with
// data in any of the files, or the last one of any. What lies between are holes,
// of which a file can have 2^63 bytes.
func nextData(ctx context.Context, all []verified, from, longest uint64) (uint64, error) {
	next := (longest + verifyBlock - 1) / verifyBlock
	for i := range all {
		at, err := all[i].data(ctx, from)
		if err != nil {
			return 0, rankFault(i, err)
		}
		next = min(next, at)
	}
	return max(from, next), nil
}

// data is the first block at or behind from that has data, or is the file's last
// one; a number too great for a block where there is none.
func (v *verified) data(ctx context.Context, from uint64) (uint64, error) {
	if from*verifyBlock >= v.size {
		return math.MaxUint64, nil
	}
	last := (v.size - 1) / verifyBlock
	var at uint64
	var err error
	if v.end.Remote != nil {
		at, err = v.end.Remote.Seek(ctx, from*verifyBlock, objects.SeekData)
	} else {
		at, err = v.end.Local.Seek(ctx, from*verifyBlock, objects.SeekData)
	}
	if errors.Is(err, objects.ErrNoData) {
		return last, nil
	}
	return min(last, at/verifyBlock), err
}

// skip notes the blocks [from, to), of which each file has all or none, without
// data: they differ where one of the two files has ended.
func (v *verified) skip(first *verified, from, to uint64) {
	if from == to || (from*verifyBlock >= v.size) == (from*verifyBlock >= first.size) {
		return
	}
	if v.blocks == 0 {
		v.first = from
	}
	v.blocks += to - from
}

// sums are the checksums of the next blocks.
func (v *verified) sums(ctx context.Context, from uint64) ([]byte, error) {
	if from*verifyBlock >= v.size {
		return nil, nil
	}
	var all []byte
	var err error
	if v.end.Remote != nil {
		all, err = v.end.Remote.Sums(ctx, verifyBlock, from, verifyAtOnce)
	} else {
		all, err = cluster.SumsOf(ctx, v.end.Local, verifyBlock, from, verifyAtOnce)
	}
	want := min((v.size+verifyBlock-1)/verifyBlock-from, verifyAtOnce)
	if err == nil && uint64(len(all)) != want*sha256.Size {
		err = fmt.Errorf("it was cut meanwhile: %w", io.ErrUnexpectedEOF)
	}
	return all, err
}

// count notes the blocks that differ from those of the first file.
func (v *verified) count(first, own []byte, from uint64) {
	for at := 0; at < max(len(first), len(own)); at += sha256.Size {
		a, b := first[min(at, len(first)):], own[min(at, len(own)):]
		if bytes.Equal(a[:min(sha256.Size, len(a))], b[:min(sha256.Size, len(b))]) {
			continue
		}
		if v.blocks == 0 {
			v.first = from + uint64(at/sha256.Size)
		}
		v.blocks++
	}
}
