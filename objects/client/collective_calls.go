package client

import (
	"context"
	"os"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// Collect runs a collective whose ranks are files of one mount, of any devices and nodes.
// sources are the ranks' inputs, targets receive their results; both have an entry for each
// rank, nil if it has none. Any descriptors of the files can be used (Find); the caller must
// be allowed to read the sources and write the targets. It changes nothing unless all results
// are complete. The end of the context, or of this process, stops it.
//
// Errors: ErrNoDaemon, and an *Error with the daemon's text.
func (c *Client) Collect(ctx context.Context, r adminapi.CollectRequest, sources, targets []*os.File) (done adminapi.CollectAnswer, err error) {
	var files []*os.File
	r.Sources, files = named(sources, files)
	r.Targets, files = named(targets, files)
	err = c.asked(ctx, func(s *Session) error {
		if failure := s.request(ctx, frames.RequestCollect, r, files, &done); failure != nil {
			return lastError{failure} // it may be done, and sources may be targets
		}
		return nil
	})
	return done, err
}

// Verify reports whether files of one mount have the same bytes, and where they differ. The
// caller must be allowed to read them.
//
// Errors: those of Collect.
func (c *Client) Verify(ctx context.Context, files []*os.File) (done adminapi.VerifyAnswer, err error) {
	var r adminapi.VerifyRequest
	r.Files, files = named(files, nil)
	err = c.asked(ctx, func(s *Session) error { return s.request(ctx, frames.RequestVerify, r, files, &done) })
	return done, err
}

// named returns an empty File for each non-nil file, and appends these files to all.
func named(files, all []*os.File) ([]*adminapi.File, []*os.File) {
	names := make([]*adminapi.File, len(files))
	for i, f := range files {
		if f != nil {
			names[i] = &adminapi.File{}
			all = append(all, f)
		}
	}
	return names, all
}
