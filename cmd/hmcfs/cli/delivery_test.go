package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// publicationClient is a session with one publication, of another node.
type publicationClient struct {
	hetero.Client

	content []byte
	memory  *os.File
	claims  int
	// fetch and settle replace the usual behaviour for the first claim.
	fetch  func(off int64) error
	settle error
}

func (c *publicationClient) DevClaim(context.Context, string, hetero.ClaimOptions) (hetero.MetaInfo, error) {
	c.claims++
	return hetero.MetaInfo{Size: devices.Size(len(c.content))}, nil
}

func (c *publicationClient) PreRegister(_ context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	c.memory = m.Files[0]
	return 1, nil
}

func (c *publicationClient) DevFetch(_ context.Context, _ string, list hetero.DeviceBlobList) error {
	if c.fetch != nil && c.claims == 1 {
		if err := c.fetch(list.SourceOffset); err != nil {
			return err
		}
	}
	_, err := c.memory.WriteAt(c.content[list.SourceOffset:][:list.Blobs[0].Size], 0)
	return err
}

func (c *publicationClient) DevSettle(_ context.Context, _ string, received bool) error {
	if received && c.claims == 1 {
		return c.settle
	}
	return nil
}

func (*publicationClient) Unregister(context.Context, hetero.MemoryID) error { return nil }

// TestWrittenOnce has a publication fail on its way to standard output: it is
// tried again if nothing of it was written, and never written twice.
func TestWrittenOnce(t *testing.T) {
	kit.Check(t)
	const size = int(deliveryChunk) + 4321
	gone := fmt.Errorf("the owner: %w", hetero.ErrTimeout)
	for name, c := range map[string]struct {
		fetch  func(off int64) error
		settle error
		// written is the number of bytes written at the end; again is set if the
		// publication is tried again.
		written int
		again   bool
	}{
		"no failure":              {written: size},
		"nothing was written":     {fetch: func(int64) error { return gone }, again: true},
		"a part was written":      {fetch: func(off int64) error { return when(off > 0, gone) }, written: int(deliveryChunk)},
		"not known to be settled": {settle: gone, written: size},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Mkdir(filepath.Join(dir, publishDir), 0o700))
			var out bytes.Buffer
			a := keyVerbs{&app{Env: Env{Stdout: &out, Stderr: io.Discard}}}
			content := kit.Bytes(1, 0, size)
			s := &subscription{
				a: a, m: place.Mount{MountPoint: dir}, files: mountedKeys{place.Mount{MountPoint: dir}, publishDir}, reserved: map[int]bool{},
				r: a.newKeyReport("subscribe", []keyPath{{key: "k", path: standardStream}}, nil),
				c: &publicationClient{content: content, fetch: c.fetch, settle: c.settle},
			}
			again := s.take(t.Context(), []int{0})
			if (len(again) > 0) != c.again || !bytes.Equal(out.Bytes(), content[:c.written]) {
				t.Errorf("again %v; %d bytes are written, differing at %d; want %d", again, out.Len(), kit.FirstDiff(out.Bytes(), content[:c.written]), c.written)
			}
			if failed := c.settle != nil || c.fetch != nil; !c.again && s.r.rows[0].OK == failed {
				t.Errorf("row %+v", s.r.rows[0])
			}
		})
	}
}

func when(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
