package main

import (
	"context"
	"path/filepath"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// mountAt mounts devices below the lab's directory; the lab's close unmounts.
func (l *lab) mountAt(ctx context.Context, name string, specs ...string) (*measure.Mount, error) {
	m, err := l.mountOn(ctx, name, "", specs...)
	if err == nil {
		l.Later(func() error { return m.Unmount(ctx) })
	}
	return m, err
}

// mountOn mounts with a state directory; the caller unmounts.
func (l *lab) mountOn(ctx context.Context, name, state string, specs ...string) (*measure.Mount, error) {
	m := &measure.Mount{Program: l.opts.hmcfs, Point: filepath.Join(l.dir, name), State: state}
	return m, m.Start(ctx, measure.Devices(specs...)...)
}
