package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// keyVerbs are the commands for keys.
type keyVerbs struct{ *app }

// openKeys opens a session with the daemon of a mount. The caller closes it.
func (a keyVerbs) openKeys(ctx context.Context, m place.Mount) (hetero.Client, error) {
	socket, err := a.keySocket(ctx, m)
	if err != nil {
		return nil, err
	}
	c, err := client.OpenSession(ctx, socket)
	if errors.Is(err, client.ErrNoDaemon) {
		if _, failure := a.connect(ctx, m); failure != nil {
			err = failure // it names the way out
		}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// keySocket returns the path of the socket of the daemon of a mount. It reads it from the
// mount if this user has access; other users get an error that says what is wrong.
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

// openKeysOf opens a session with the daemon of the selected mount.
func (a keyVerbs) openKeysOf(ctx context.Context, f *keyFlags, pairs []keyPath) (hetero.Client, place.Mount, error) {
	m, err := a.mountFor(f.mount, pathsOf(pairs)...)
	if err != nil {
		return nil, m, err
	}
	c, err := a.openKeys(ctx, m)
	return c, m, err
}

// listen opens the event stream of a mount. The caller closes it.
func (a keyVerbs) listen(ctx context.Context, m place.Mount) (*client.Watch, error) {
	socket, err := a.keySocket(ctx, m)
	if err != nil {
		return nil, err
	}
	return client.New(socket).Watch(ctx)
}

// onKeys executes a call of the API that returns a result for each key and moves no bytes.
func (a keyVerbs) onKeys(ctx context.Context, verb string, pairs []keyPath, f *keyFlags, call func(hetero.Client, []string) (hetero.Results, error)) error {
	c, _, err := a.openKeysOf(ctx, f, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it holds nothing
	results, err := call(c, keysOf(pairs))
	if len(results) == 0 && err != nil && ctx.Err() == nil {
		return err
	}
	r := a.newKeyReport(verb, pairs, nil)
	for i, one := range results {
		r.rows[i].Skipped = one.Skipped
		r.settle(i, one.Err)
	}
	return r.finish(ctx, *f.asJSON, err)
}

func keyFile(m place.Mount, key string) string { return filepath.Join(m.MountPoint, keysDir, key) }

func publishedFile(m place.Mount, key string) string {
	return filepath.Join(m.MountPoint, publishDir, key)
}
