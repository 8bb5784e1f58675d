package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// outEnv names the directory to which the command of a source writes.
const outEnv = "HMCFS_OUT"

// ErrSize reports a file whose size differs from its buffer's.
var ErrSize = errors.New("the size differs")

// bring returns the values of some buffers for one rank, from any kind of source. It never
// uses the content of the buffers: a missing value is an error.
func (j *job) bring(ctx context.Context, what string, s *Source, names []string, rank int) (map[string][]byte, error) {
	if len(names) == 0 || s == nil {
		return nil, nil
	}
	paths := map[string]string{}
	switch {
	case len(s.Command) > 0:
		dir := filepath.Join(j.dir, what, fmt.Sprint(rank))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := j.produce(ctx, s.Command, dir, rank); err != nil {
			return nil, fmt.Errorf("%s for rank %d: %w", what, rank, err)
		}
		for _, name := range names {
			paths[name] = filepath.Join(dir, name+".bin")
		}
	case s.Files != nil:
		for _, name := range names {
			paths[name] = strings.ReplaceAll(s.Files[name], "{rank}", strconv.Itoa(rank))
		}
	}
	out := map[string][]byte{}
	for _, name := range names {
		var err error
		if b := j.plan.buffer(name); s.Values != nil {
			out[name], err = j.compute(b, s.Values[name], rank)
		} else {
			out[name], err = readExactly(paths[name], b.size())
		}
		if err != nil {
			return nil, fmt.Errorf("%s for rank %d: %s: %w", what, rank, name, err)
		}
	}
	return out, nil
}

// produce runs the command of a source for one rank.
func (j *job) produce(ctx context.Context, command []string, dir string, rank int) error {
	env, err := j.environment(rank)
	if err != nil {
		return err
	}
	program, err := findProgram(command[0])
	if err != nil {
		return err
	}
	var said [2]tail
	c, err := j.begin(&order{
		rank: rank, program: append([]string{program}, command[1:]...), env: append(env, outEnv+"="+dir),
		pass: func(stream int, from io.Reader) error {
			_, cerr := io.Copy(&said[stream], from)
			return cerr
		},
	})
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, func() { c.tell(endNow) })()
	c.tell(start)
	e := c.wait()
	if ctx.Err() != nil {
		return ErrStopped
	}
	if !e.Failed() {
		return nil
	}
	for i := range said {
		if text := lastLine(said[1-i].held); text != "" {
			return fmt.Errorf("%s: %s: %s", command[0], &e, text)
		}
	}
	return fmt.Errorf("%s: %s", command[0], &e)
}

// lastLine returns the last line that is not empty.
func lastLine(p []byte) string {
	text := strings.TrimSpace(string(p))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tail keeps the end of its input.
type tail struct{ held []byte }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	const most = 1000
	t.held = append(t.held, p[max(0, len(p)-most):]...)
	t.held = t.held[max(0, len(t.held)-most):]
	return len(p), nil
}

// readExactly reads a file, which must have the given size.
func readExactly(path string, size uint64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: %w", filepath.Base(path), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uint64(st.Size()) != size {
		return nil, fmt.Errorf("%s has %d bytes, but the buffer has %d: %w", filepath.Base(path), st.Size(), size, ErrSize)
	}
	p := make([]byte, size)
	_, err = io.ReadFull(f, p)
	return p, err
}

// compute returns a formula's values for a buffer.
func (j *job) compute(b *Buffer, text string, rank int) ([]byte, error) {
	f, err := parseFormula(text)
	if err != nil {
		return nil, err
	}
	p := make([]byte, b.size())
	values := [4]float64{1: float64(rank), 2: float64(j.plan.Ranks), 3: float64(j.plan.config.Root)}
	for i := range b.Count {
		values[0] = float64(i)
		if err = put(p[i*b.kind.Size():], b.kind, f(&values)); err != nil {
			return nil, fmt.Errorf("formula %q at %d: %w", text, i, err)
		}
	}
	return p, nil
}

// load stores the inputs of all ranks in their buffers.
func (j *job) load(ctx context.Context) error {
	for rank := j.First; rank < j.First+j.Count; rank++ {
		values, err := j.bring(ctx, "generate", j.plan.config.Generate, j.plan.config.Inputs, rank)
		if err != nil {
			return err
		}
		for name, p := range values {
			at := j.spot(rank, j.plan.buffer(name))
			if _, err = at.file.WriteAt(p, int64(at.off)); err != nil {
				return fmt.Errorf("input %q of rank %d: %w", name, rank, err)
			}
		}
	}
	return nil
}

// read returns the content of a buffer of a rank.
func (j *job) read(rank int, b *Buffer) ([]byte, error) {
	at := j.spot(rank, b)
	p := make([]byte, at.size)
	if _, err := at.file.ReadAt(p, int64(at.off)); err != nil {
		return nil, fmt.Errorf("output %q of rank %d: %w", b.Name, rank, err)
	}
	return p, nil
}
