package client

import (
	"context"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// endless bounds a collective if the context sets no deadline: it ends with the context, the
// daemon, or an error.
const endless = 30 * 24 * time.Hour

// Collect runs a collective whose ranks are files of one mount, of any devices and nodes.
// sources are the ranks' inputs, targets receive their results; both have an entry for each
// rank, nil if it has none. Any descriptors of the files can be used (Find); the caller must
// be allowed to read the sources and write the targets. It changes nothing unless all results
// are complete. The end of the context, or of this process, stops it.
//
// Errors: ErrNoDaemon, and an *Error with the daemon's text.
func (c *Client) Collect(ctx context.Context, r adminapi.CollectRequest, sources, targets []*os.File) (adminapi.CollectAnswer, error) {
	var files []*os.File
	r.Sources, files = named(sources, files)
	r.Targets, files = named(targets, files)
	x, err := c.askLong(ctx, adminapi.PathCollect, "", r, files)
	return partOf(x, err, func(r *adminapi.Reply) *adminapi.CollectAnswer { return r.Collected })
}

// Verify reports whether files of one mount have the same bytes, and where they differ. The
// caller must be allowed to read them.
//
// Errors: those of Collect.
func (c *Client) Verify(ctx context.Context, files []*os.File) (adminapi.VerifyAnswer, error) {
	var r adminapi.VerifyRequest
	r.Files, files = named(files, nil)
	x, err := c.askLong(ctx, adminapi.PathVerify, "", r, files)
	return partOf(x, err, func(r *adminapi.Reply) *adminapi.VerifyAnswer { return r.Verified })
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

// askLong is ask for a request of unlimited duration.
func (c *Client) askLong(ctx context.Context, path, session string, question any, files []*os.File) (*exchange, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, endless)
		defer cancel()
	}
	return c.ask(ctx, path, session, question, files)
}
