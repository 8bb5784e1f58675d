package filecollect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

const (
	// VerifyBlock is the number of bytes per checksum.
	VerifyBlock = uint64(devices.MiB)
	// verifyAtOnce is the number of blocks requested from a node at a time: it can checksum
	// that many in a small part of the time that an answer may take.
	verifyAtOnce = 64
	// MaxVerified bounds the number of files compared.
	MaxVerified = 128
)

// Verified is the result of comparing a file with the first one of a list.
type Verified struct {
	// Size is the size of the file in bytes.
	Size uint64
	// First is the first block of VerifyBlock bytes that differs; Blocks is the number that
	// differ.
	First, Blocks uint64
}

// Verify compares files with the first one. Each node reads its own files, and sends
// checksums.
//
// Errors: objects.ErrInvalid for none or more than MaxVerified; *RankError for a file that
// can't be read.
func Verify(ctx context.Context, store *objects.Store, tree *cluster.Mesh, by objects.Caller, inos []objects.Ino) ([]Verified, error) {
	if len(inos) == 0 || len(inos) > MaxVerified {
		return nil, fmt.Errorf("%d files given, but 1 to %d are allowed: %w", len(inos), MaxVerified, objects.ErrInvalid)
	}
	o := newOpened(store, tree, by, inos, nil)
	defer o.close(ctx)
	all := make([]verified, len(inos))
	for i, ino := range inos {
		var err error
		if all[i].end, err = o.open(ctx, ino); err == nil {
			all[i].Size, err = sizeOf(ctx, all[i].end)
		}
		if err != nil {
			return nil, ofRank(i, err)
		}
	}
	if err := compare(ctx, all); err != nil {
		return nil, err
	}
	out := make([]Verified, len(all))
	for i, f := range all {
		out[i] = f.Verified
	}
	return out, nil
}

// verified is a file that is compared with the first one.
type verified struct {
	Verified

	end cluster.End
}

// compare counts the blocks that differ.
func compare(ctx context.Context, all []verified) error {
	var longest uint64
	for i := range all {
		longest = max(longest, all[i].Size)
	}
	for from := uint64(0); from*VerifyBlock < longest; from += verifyAtOnce {
		data, err := nextData(ctx, all, from, longest)
		if err != nil {
			return err
		}
		for i := range all[1:] {
			all[i+1].skip(&all[0], from, data)
		}
		if from = data; from*VerifyBlock >= longest {
			return nil
		}
		sums, errs := make([][]byte, len(all)), make([]error, len(all))
		var reading sync.WaitGroup
		for i := range all {
			reading.Go(func() { sums[i], errs[i] = all[i].sums(ctx, from) })
		}
		reading.Wait()
		for i, err := range errs {
			if err != nil {
				return ofRank(i, err)
			}
		}
		for i := range all[1:] {
			all[i+1].count(sums[0], sums[i+1], from)
		}
	}
	return nil
}

// nextData returns the first block, starting at from, that must be read: one with data in any
// of the files, or the last one of any. The blocks before it are holes, of which a file can
// have 2^63 bytes.
func nextData(ctx context.Context, all []verified, from, longest uint64) (uint64, error) {
	next := (longest + VerifyBlock - 1) / VerifyBlock
	for i := range all {
		at, err := all[i].data(ctx, from)
		if err != nil {
			return 0, ofRank(i, err)
		}
		next = min(next, at)
	}
	return max(from, next), nil
}

// data returns the first block, starting at from, that has data, or is the file's last one; if
// there is none, a number greater than any block.
func (v *verified) data(ctx context.Context, from uint64) (uint64, error) {
	if from*VerifyBlock >= v.Size {
		return math.MaxUint64, nil
	}
	last := (v.Size - 1) / VerifyBlock
	var at uint64
	var err error
	if v.end.Remote != nil {
		at, err = v.end.Remote.Seek(ctx, from*VerifyBlock, objects.SeekData)
	} else {
		at, err = v.end.Local.Seek(ctx, from*VerifyBlock, objects.SeekData)
	}
	if errors.Is(err, objects.ErrNoData) {
		return last, nil
	}
	return min(last, at/VerifyBlock), err
}

// skip counts the blocks [from, to), which lie either completely within or beyond each file
// and have no data: they differ if one of the two files has ended.
func (v *verified) skip(first *verified, from, to uint64) {
	if from == to || (from*VerifyBlock >= v.Size) == (from*VerifyBlock >= first.Size) {
		return
	}
	if v.Blocks == 0 {
		v.First = from
	}
	v.Blocks += to - from
}

// sums returns the checksums of the next blocks.
func (v *verified) sums(ctx context.Context, from uint64) ([]byte, error) {
	if from*VerifyBlock >= v.Size {
		return nil, nil
	}
	var all []byte
	var err error
	if v.end.Remote != nil {
		all, err = v.end.Remote.Sums(ctx, VerifyBlock, from, verifyAtOnce)
	} else {
		all, err = cluster.SumsOf(ctx, v.end.Local, VerifyBlock, from, verifyAtOnce)
	}
	want := min((v.Size+VerifyBlock-1)/VerifyBlock-from, verifyAtOnce)
	if err == nil && uint64(len(all)) != want*sha256.Size {
		err = fmt.Errorf("it was truncated in the meantime: %w", io.ErrUnexpectedEOF)
	}
	return all, err
}

// count counts the blocks that differ from those of the first file.
func (v *verified) count(first, own []byte, from uint64) {
	for at := 0; at < max(len(first), len(own)); at += sha256.Size {
		a, b := first[min(at, len(first)):], own[min(at, len(own)):]
		if bytes.Equal(a[:min(sha256.Size, len(a))], b[:min(sha256.Size, len(b))]) {
			continue
		}
		if v.Blocks == 0 {
			v.First = from + uint64(at/sha256.Size)
		}
		v.Blocks++
	}
}
