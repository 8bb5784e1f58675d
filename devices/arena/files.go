package arena

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// slabFiles are the descriptors of a kept slab: one of a file with its memory and its labels
// or, if the memory is the device's own, one for each.
type slabFiles struct{ memory, labels *os.File }

// labelsSuffix follows the name of a slab in that of its labels, if they are apart.
const labelsSuffix = "/labels"

// labelStart returns the offset of the labels of a slab in their file.
func (a *Arena) labelStart(size devices.Size) devices.Size {
	if a.own {
		return 0
	}
	return roundUp(size, devices.Size(os.Getpagesize()))
}

// fileBytes returns the length of the file with the labels of a slab.
func (a *Arena) fileBytes(size devices.Size) int64 {
	return int64(a.labelStart(size) + labelBytes(size, a.opts.PageSize))
}

// newFiles makes the files of a new slab.
func (a *Arena) newFiles(ctx context.Context, size devices.Size) (f slabFiles, err error) {
	f.labels, err = a.files.Create("hmcfs-"+string(a.info.Name), a.fileBytes(size))
	if errors.Is(err, devices.ErrOutOfMemory) {
		return f, err
	}
	if err != nil {
		return f, &keepError{err}
	}
	f.memory = f.labels
	if !a.own {
		return f, nil
	}
	maker, ok := devices.LastingMakerOf(a.dev)
	if !ok {
		return f, errors.Join(fmt.Errorf("memory of %s behind a descriptor: %w", a.info.Name, devices.ErrUnsupported), f.labels.Close())
	}
	if f.memory, err = maker.MakeLasting(ctx, size); err == nil {
		return f, nil
	}
	if ctx.Err() == nil && !errors.Is(err, devices.ErrOutOfMemory) {
		err = &keepError{err}
	}
	return f, errors.Join(err, f.labels.Close())
}

// filesOf finds the files of a slab among those of an earlier process. Those that are missing
// are nil.
func (a *Arena) filesOf(slab string, files map[string]*os.File) slabFiles {
	f := slabFiles{memory: files[slab], labels: files[slab]}
	if a.own {
		f.labels = files[slab+labelsSuffix]
	}
	return f
}

func (f slabFiles) close() error {
	err := f.labels.Close()
	if f.memory != f.labels {
		err = errors.Join(err, f.memory.Close())
	}
	return err
}

// keep keeps the files of a slab. Labels without memory are no slab, so a process that is
// killed in between leaves none.
func (a *Arena) keep(slab string, f slabFiles) error {
	if f.memory == f.labels {
		return a.opts.Keeper.Keep(slab, f.memory)
	}
	if err := a.opts.Keeper.Keep(slab+labelsSuffix, f.labels); err != nil {
		return err
	}
	if err := a.opts.Keeper.Keep(slab, f.memory); err != nil {
		return errors.Join(err, a.opts.Keeper.Drop(slab+labelsSuffix))
	}
	return nil
}

// drop is the reverse of keep.
func (a *Arena) drop(slab string) error {
	err := a.opts.Keeper.Drop(slab)
	if a.own {
		err = errors.Join(err, a.opts.Keeper.Drop(slab+labelsSuffix))
	}
	return err
}
