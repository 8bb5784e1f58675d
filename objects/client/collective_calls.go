package client

import (
	"context"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// endless bounds a collective where the context sets no deadline:
// it ends with the context, the daemon, or an error.
const endless = 30 * 24 * time.Hour

// Collect does a collective whose ranks are files of one mount, of any devices
// and nodes. sources are what the ranks begin with, targets what gets their
// results; both have an entry for each rank, nil where that has none. Any
// descriptors of the files will do (Find); who asks may read the sources and
// write the targets. It changes nothing unless all results are whole. The end of
// the context, and of this process, stops it.
//
// Errors: ErrNoDaemon, and an *Error with the daemon's words.
func (c *Client) Collect(ctx context.Context, r adminapi.CollectRequest, sources, targets []*os.File) (adminapi.CollectAnswer, error) {
	var files []*os.File
	r.Sources, files = named(sources, files)
	r.Targets, files = named(targets, files)
	x, err := c.askLong(ctx, adminapi.PathCollect, r, files)
	if err != nil {
		return adminapi.CollectAnswer{}, err
	}
	if x.reply.Collected == nil {
		return adminapi.CollectAnswer{}, errAnswer
	}
	return *x.reply.Collected, nil
}

// Verify says whether files of one mount have the same bytes, and where not. Who
// asks may read them.
//
// Errors: those of Collect.
func (c *Client) Verify(ctx context.Context, files []*os.File) (adminapi.VerifyAnswer, error) {
	var r adminapi.VerifyRequest
	r.Files, files = named(files, nil)
	x, err := c.askLong(ctx, adminapi.PathVerify, r, files)
	if err != nil {
		return adminapi.VerifyAnswer{}, err
	}
	if x.reply.Verified == nil {
		return adminapi.VerifyAnswer{}, errAnswer
	}
	return *x.reply.Verified, nil
}

// named has an empty name for each file that is there, and those behind all.
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

// askLong asks what may take any time. The exchange is over.
func (c *Client) askLong(ctx context.Context, path string, question any, files []*os.File) (*exchange, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, endless)
		defer cancel()
	}
	x, err := c.ask(ctx, path, "", question, files)
	if err != nil {
		return nil, err
	}
	_ = x.close() // the answer is there
	return x, nil
}
