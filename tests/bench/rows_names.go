package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
)

// places returns the directories in which names are measured.
func (l *lab) places() []struct{ name, dir string } {
	return []struct{ name, dir string }{
		{"ocl0", l.in("ocl0")},
		{"host", l.in("host")},
		{"loopback", l.loop},
		{"loopback with default_permissions", l.checked},
		{"tmpfs", l.tmpfs},
	}
}

// nameRows returns the rows of operations on names, and of small reads.
func (l *lab) nameRows() []row {
	var makes, looks, reads []side
	var dirs, files []string
	n := l.opts.files
	for _, p := range l.places() {
		dir, file := filepath.Join(p.dir, "names"), filepath.Join(p.dir, "file")
		dirs, files = append(dirs, dir), append(files, file)
		makes = append(makes, side{
			Name:    p.name,
			Prepare: func(context.Context) error { return os.MkdirAll(dir, 0o700) },
			Run: bench.Timed(func(ctx context.Context) (int64, error) {
				return bench.CreateUnlink(ctx, dir, n)
			}),
		})
		looks = append(looks, l.stat(p.name, dir))
		reads = append(reads, side{
			Name:    p.name,
			Prepare: func(ctx context.Context) error { return l.ensure(ctx, file) },
			Run: bench.Timed(func(ctx context.Context) (int64, error) {
				return bench.RandomRead(ctx, file, l.opts.reads)
			}),
		})
	}
	wants := []want{
		{of: "ocl0", against: "loopback", bound: 1},
		{of: "host", against: "loopback", bound: 1},
	}
	return []row{
		{
			name: "create and unlink of empty files", unit: perSecond, sides: makes, wants: wants, after: removing(dirs...),
			notes: []string{
				"Files a second: all are created and closed, then all are unlinked, by one thread. With default_permissions, which",
				"hmcfs always has, the kernel asks for the directory's attributes after each change of it.",
			},
		},
		{
			name: "stat, cold dcache", unit: perSecond, sides: looks, wants: wants, after: removing(dirs...),
			notes: []string{"After drop_caches=2, by one thread. tmpfs keeps its names, so it is warm there."},
		},
		{
			name: "4 KiB random reads", unit: perSecond, sides: reads, after: removing(files...),
			notes: []string{"By pread, one thread. host and loopback are passed through by the kernel or kept in its page cache; ocl0 is asked each time."},
		},
	}
}

// stat calls stat for files that are created once.
func (l *lab) stat(name, dir string) side {
	n := l.opts.files
	made := false
	return side{
		Name: name,
		Prepare: func(ctx context.Context) error {
			if !made {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					return err
				}
				if err := bench.MakeFiles(ctx, dir, n); err != nil {
					return err
				}
				made = true
			}
			return bench.DropNames()
		},
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			return bench.StatFiles(ctx, dir, n)
		}),
	}
}
