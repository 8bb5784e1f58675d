package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// The kinds of events, as .hmcfs/events has them.
const (
	eventCreated   = "created"
	eventRemoved   = "removed"
	eventExpired   = "expired"
	eventLost      = "lost"
	eventPublished = "published"
	eventConsumed  = "consumed"
	eventWithdrawn = "withdrawn"
	eventConflict  = "conflict"
	eventDropped   = "dropped"
)

// keyEvent is one thing that happened to a key.
type keyEvent = adminapi.Event

// eventStream is the events of a mount from its beginning on.
type eventStream interface {
	// Next waits for the next event, or for the context's end.
	Next(ctx context.Context) (keyEvent, error)
	Close() error
}

// keyVerbs are the verbs about keys.
type keyVerbs struct{ *app }

// openKeys begins a session with the daemon of a mount. The caller closes it.
func (a keyVerbs) openKeys(ctx context.Context, m place.Mount) (hetero.Client, error) {
	socket, err := a.keySocket(ctx, m)
	if err != nil {
		return nil, err
	}
	return client.OpenSession(ctx, socket)
}

// keySocket returns the path at which the daemon of a mount listens. The mount itself tells it
// to whoever it is open to; others learn what is wrong.
func (a keyVerbs) keySocket(ctx context.Context, m place.Mount) (string, error) {
	socket, err := answers(ctx, m, socketOf)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.MountPoint, err)
	}
	if socket != "" {
		return socket, nil
	}
	_, p, err := a.findDaemon(ctx, m)
	return p.Socket(), err
}

// openKeysOf begins a session with the daemon of the mount that is meant.
func (a keyVerbs) openKeysOf(ctx context.Context, f *keyFlags, pairs []keyPath) (hetero.Client, error) {
	m, err := keyMount(f.mount, pairs)
	if err != nil {
		return nil, err
	}
	return a.openKeys(ctx, m)
}

// listen begins a stream of what happens in a mount. The caller closes it.
func (a keyVerbs) listen(ctx context.Context, m place.Mount) (eventStream, error) {
	socket, err := a.keySocket(ctx, m)
	if err != nil {
		return nil, err
	}
	return client.New(socket).Watch(ctx)
}

// onKeys runs a call of the API that gives a result for each key and moves no
// bytes.
func (a keyVerbs) onKeys(ctx context.Context, verb string, pairs []keyPath, f *keyFlags, call func(hetero.Client, []string) (hetero.Results, error)) error {
	c, err := a.openKeysOf(ctx, f, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it holds nothing
	results, err := call(c, keysOf(pairs))
	if len(results) == 0 && err != nil && ctx.Err() == nil {
		return err
	}
	r := a.newKeyReport(verb, pairs)
	for i, one := range results {
		r.rows[i].Skipped = one.Skipped
		r.settle(i, one.Err)
	}
	return r.finish(ctx, *f.asJSON, err)
}

// keyFile returns the path at which a mount shows a key.
func keyFile(m place.Mount, key string) string { return filepath.Join(m.MountPoint, keysDir, key) }

// publishedFile returns the path at which a mount shows what is published under a key.
func publishedFile(m place.Mount, key string) string {
	return filepath.Join(m.MountPoint, publishDir, key)
}
