// Gen writes the input of the demo: a NumPy file and a safetensors file of random content,
// following their published formats, without any other program.
//
//	gen -dir DIR [-npy 256MiB] [-safetensors 256MiB] [-seed 1]
//
// The same seed yields the same bytes. Sizes are those of the data, rounded down to whole rows;
// headers are added to them.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hmcfs/hmcfs/devices"
)

// The names of the files that are written.
const (
	npyName         = "activations.npy"
	safetensorsName = "model.safetensors"
)

func main() {
	dir := flag.String("dir", ".", "write into this `directory`")
	npy := flag.String("npy", "256MiB", "bytes of data in "+npyName)
	tensors := flag.String("safetensors", "256MiB", "bytes of data in "+safetensorsName)
	seed := flag.Uint64("seed", 1, "what the content is drawn from")
	flag.Parse()
	if err := run(*dir, *npy, *tensors, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes both files.
func run(dir, npySize, tensorsSize string, seed uint64) error {
	npy, err := devices.ParseSize(npySize)
	if err != nil {
		return err
	}
	tensors, err := devices.ParseSize(tensorsSize)
	if err != nil {
		return err
	}
	err = writeFile(filepath.Join(dir, npyName), func(w io.Writer) error {
		return writeNPY(w, npyShape(uint64(npy)), seed)
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, safetensorsName), func(w io.Writer) error {
		return writeSafetensors(w, modelOf(uint64(tensors)), seed)
	})
}

// writeFile makes a file of what fn writes; half a file is removed.
func writeFile(path string, fn func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := fn(w); err != nil {
		return err
	}
	return w.Flush()
}
