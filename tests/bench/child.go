package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// childArg is the first argument of a process that the benchmark starts for one task on a file
// or directory.
const childArg = "hmcfs-bench-child"

// runChild executes the task and returns true if this process was started for one. A task
// prints one number, some of them a line before that.
func runChild(args []string, out, said io.Writer) bool {
	if len(args) < 4 || args[1] != childArg {
		return false
	}
	number, err := task(context.Background(), out, args[2], args[3], args[4:])
	if err != nil {
		fmt.Fprintln(said, err)
		os.Exit(1)
	}
	fmt.Fprint(out, number)
	return true
}

// task executes one task, whose arguments are numbers.
func task(ctx context.Context, out io.Writer, name, state string, args []string) (float64, error) {
	n := make([]int, len(args))
	for i, text := range args {
		var err error
		if n[i], err = strconv.Atoi(text); err != nil {
			return 0, err
		}
	}
	switch {
	case name == "open":
		return openRecords(ctx, state)
	case name == "build" && len(n) == 1:
		return float64(n[0]), buildRecords(ctx, state, n[0])
	case name == "stat" && len(n) == 1:
		return statOnce(ctx, state, n[0])
	case name == "memcpy" && len(n) == 2:
		return copyInto(state, n[0], n[1])
	case name == "crowd" && len(n) == 2:
		return crowdTask(ctx, out, state, n[0], time.Duration(n[1])*time.Microsecond)
	case name == "give" && len(n) == 2:
		return giveTask(ctx, state, devices.Size(n[0]), n[1])
	case name == "take" && len(n) == 2:
		return takeTask(ctx, state, devices.Size(n[0]), n[1])
	case name == "copy" && len(n) == 2:
		return plainTask(ctx, state, devices.Size(n[0]), n[1])
	case name == "rank" && len(n) == 3:
		return rankTask(ctx, state, n[0] != 0, devices.Size(n[1]), n[2])
	}
	return 0, fmt.Errorf("no task %q", name)
}

// child starts a process of this program to execute one task where a command runs, and returns
// the number that it prints.
func child(ctx context.Context, command measure.Command, args ...string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	out, err := measure.Output(command(ctx, self, append([]string{childArg}, args...)...))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// openStore opens the records of a state directory as a daemon does.
func openStore(ctx context.Context, state string) (*metadata.Store, error) {
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: filepath.Join(state, "metadata")})
	if err != nil {
		return nil, err
	}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	return s, nil
}

// openRecords opens the records and returns how many seconds that took.
func openRecords(ctx context.Context, state string) (float64, error) {
	begin := time.Now()
	s, err := openStore(ctx, state)
	if err != nil {
		return 0, err
	}
	took := time.Since(begin).Seconds()
	return took, s.Close()
}

const (
	// perDir is the number of files per directory.
	perDir = 1000
	// builders is the number of goroutines that create files.
	builders = 4
)

// buildRecords creates a state directory with n files, each with one buffer mapping and a key.
func buildRecords(ctx context.Context, state string, n int) (err error) {
	if err = os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	// Without this file a mount does not recognize the directory as its own.
	if err = os.WriteFile(filepath.Join(state, ".hmcfs"), nil, 0o600); err != nil {
		return err
	}
	s, err := openStore(ctx, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	root, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		return err
	}
	return measure.AtOnce(builders, func(i int) error {
		for first := i * perDir; first < n; first += builders * perDir {
			if err := buildDir(ctx, s, root.Ino, first, min(perDir, n-first)); err != nil {
				return err
			}
		}
		return nil
	})
}

func buildDir(ctx context.Context, s *metadata.Store, root metadata.Ino, first, n int) error {
	dir, err := s.Create(ctx, root, fmt.Sprintf("dir%06d", first), metadata.Node{Mode: metadata.TypeDir | 0o755})
	if err != nil {
		return err
	}
	for i := first; i < first+n; i++ {
		if err := buildFile(ctx, s, dir.Ino, i); err != nil {
			return err
		}
	}
	return nil
}

// buildFile creates file i: 4 KiB in its own page.
func buildFile(ctx context.Context, s *metadata.Store, dir metadata.Ino, i int) error {
	const size, epoch = 4096, 1
	f, err := s.Create(ctx, dir, fmt.Sprintf("tensor-%08d.bin", i), metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		return err
	}
	_, err = s.SaveContent(ctx, f.Ino, func(in *metadata.Inode) error {
		in.Size, in.Allocated, in.Epoch, in.Path = size, size, epoch, "h2d"
		return nil
	}, []metadata.Mapping{{
		Len: size, Written: size, Device: "sim0", Epoch: epoch,
		Allocation: metadata.AllocationID(1 + i/16384), Off: uint64(i%16384) * size,
	}})
	if err != nil {
		return err
	}
	return s.BindKey(ctx, f.Ino, fmt.Sprintf("model:layer%d:tensor%d", i%100, i))
}
