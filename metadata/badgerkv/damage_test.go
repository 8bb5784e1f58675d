package badgerkv_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// damageDir marks a test binary as the process that creates a state.
const damageDir = "HMCFS_BADGERKV_DAMAGE_DIR"

const (
	stateFiles = 500
	stateLives = 7 // of the maker
	bodyAttr   = "user.body"
)

// bodyOf returns the content of an attribute of a file at one version.
func bodyOf(file, version int) []byte {
	return kit.Bytes(uint64(file)<<8|uint64(version), 0, 100+file%7*700)
}

// stateMaker creates files in several lives, with changes, renames and removals between
// them, and reports each completed step. At a line "copy" it waits for an answer.
func stateMaker(ctx context.Context, dir string) error {
	answers := bufio.NewReader(os.Stdin)
	for life := range stateLives {
		s, err := makerLife(ctx, dir, life, answers)
		if err != nil {
			return err
		}
		if life == stateLives-1 {
			break // it is killed while the store is open
		}
		if err = s.Close(); err != nil {
			return err
		}
		if err = ask("copy", answers); err != nil {
			return err
		}
	}
	return ask("ready", answers)
}

// makerLife creates the files of one life, and returns the store, which is open.
func makerLife(ctx context.Context, dir string, life int, answers *bufio.Reader) (*metadata.Store, error) {
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir, Witness: dir + ".witness"})
	if err != nil {
		return nil, err
	}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		return nil, err
	}
	dev, err := s.EnsureDevice(ctx, "host", 0o755, 0, 0)
	if err != nil {
		return nil, err
	}
	from, to := stateFiles*life/stateLives, stateFiles*(life+1)/stateLives
	for i := from; i < to; i++ {
		if err = makeFile(ctx, s, dev.Ino, i); err != nil {
			return nil, err
		}
		if i == (from+to)/2 || i == stateFiles-1 {
			if err = ask("copy", answers); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// ask writes a line, and waits for the answer.
func ask(line string, answers *bufio.Reader) error {
	fmt.Fprintln(os.Stdout, line)
	_, err := answers.ReadString('\n')
	return err
}

// makeFile creates file i, changes an older one and removes another.
func makeFile(ctx context.Context, s *metadata.Store, dir metadata.Ino, i int) error {
	in, err := s.Create(ctx, dir, fmt.Sprintf("new%d", i), metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		return err
	}
	if err = s.SetXattr(ctx, in.Ino, bodyAttr, bodyOf(i, 0), 0); err != nil {
		return err
	}
	if _, err = s.Rename(ctx, metadata.Rename{From: dir, Name: fmt.Sprintf("new%d", i), To: dir, NewName: fmt.Sprintf("f%d", i)}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "made", i, in.Ino)
	if i%3 == 0 && i > 0 {
		old, err := s.Lookup(ctx, dir, fmt.Sprintf("f%d", i/3*2))
		if err == nil {
			err = s.SetXattr(ctx, old.Ino, bodyAttr, bodyOf(i/3*2, 1), 0)
			fmt.Fprintln(os.Stdout, "changed", i/3*2, 0)
		}
		if err != nil && !errors.Is(err, metadata.ErrNotExist) {
			return err
		}
	}
	if i%5 == 4 {
		if _, err := s.Unlink(ctx, dir, fmt.Sprintf("f%d", i-2)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "gone", i-2, 0)
	}
	return nil
}

// fileFacts are the acknowledged facts of one file.
type fileFacts struct {
	ino           metadata.Ino
	changed, gone bool
}

// state is the state directory of a killed process.
type state struct {
	dir    string
	older  []string // copies of the directory, oldest first
	files  map[int]fileFacts
	highst metadata.Ino
}

// killedState creates a state and kills the process that made it.
func killedState(t *testing.T) *state {
	t.Helper()
	st := &state{dir: filepath.Join(t.TempDir(), "state"), files: map[int]fileFacts{}}
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), damageDir+"="+st.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := false
	for scan := bufio.NewScanner(out); !ready && scan.Scan(); {
		word, rest, _ := strings.Cut(scan.Text(), " ")
		var i int
		var ino metadata.Ino
		_, _ = fmt.Sscan(rest, &i, &ino)
		f := st.files[i]
		switch word {
		case "copy":
			st.older = append(st.older, fmt.Sprintf("%s.%d", st.dir, len(st.older)))
			copyState(t, st.dir, st.older[len(st.older)-1])
			_, err = io.WriteString(in, "\n")
		case "made":
			f.ino, st.highst = ino, max(st.highst, ino)
			st.files[i] = f
		case "changed":
			f.changed = true
			st.files[i] = f
		case "gone":
			f.gone = true
			st.files[i] = f
		case "ready":
			ready = true
		default:
			t.Fatalf("the maker says %q", scan.Text())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // reports that the process was killed
	if !ready {
		t.Fatal("the maker did not get ready")
	}
	return st
}

// copyState copies the files of a directory, leaving out their holes, as of a moment in which Badger makes no table of a log.
func copyState(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	var files map[string]fileBytes
	kit.Eventually(t, time.Minute, func() (err error) {
		before, berr := filesOf(from)
		files, err = stateOf(from)
		after, aerr := filesOf(from)
		if err = errors.Join(berr, err, aerr); err == nil && before != after {
			err = errors.New("Badger has changed its tables")
		}
		return err
	})
	for name, f := range files {
		f.write(t, filepath.Join(to, name))
	}
}

// fileBytes is a file: its content without trailing zeros, and its size.
type fileBytes struct {
	data []byte
	size int64
}

func (f fileBytes) write(t *testing.T, path string) {
	t.Helper()
	err := os.WriteFile(path, f.data, 0o600)
	if err = errors.Join(err, os.Truncate(path, f.size)); err != nil {
		t.Fatal(err)
	}
}

func (f fileBytes) sum() string { return fmt.Sprintf("%d %x", f.size, sha256.Sum256(f.data)) }

// readState reads the files of a directory.
func readState(t *testing.T, dir string) map[string]fileBytes {
	t.Helper()
	out, err := stateOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func stateOf(dir string) (map[string]fileBytes, error) {
	entries, err := os.ReadDir(dir)
	out := map[string]fileBytes{}
	for _, e := range entries {
		if err == nil && !strings.HasPrefix(e.Name(), "spare") { // a running store creates and removes these at any time
			out[e.Name()], err = sparseOf(filepath.Join(dir, e.Name()))
		}
	}
	return out, err
}

func readSparse(t *testing.T, path string) fileBytes {
	t.Helper()
	is, err := sparseOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func sparseOf(path string) (is fileBytes, err error) {
	f, err := os.Open(path)
	if err != nil {
		return is, err
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return is, err
	}
	var end int64
	for end < st.Size() {
		data, none := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if none != nil {
			break
		}
		if end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
			return is, err
		}
	}
	data := make([]byte, min(end, st.Size()))
	_, err = f.ReadAt(data, 0)
	return fileBytes{bytes.TrimRight(data, "\x00"), st.Size()}, err
}

// harm is one damage to one file of a state, or to all files.
type harm struct {
	name string
	file string
	to   *fileBytes // nil removes the file
	all  string     // a copy of the state that replaces it
}

// harms lists the kinds of damage to one file. flips is the number of bits to flip.
func (s *state) harms(t *testing.T, name string, is fileBytes, flips int) []harm {
	t.Helper()
	out := []harm{{"deleted", name, nil, ""}, {"emptied", name, &fileBytes{}, ""}, {"zeroed", name, &fileBytes{nil, is.size}, ""}}
	for n := range 7 {
		for what, size := range map[string]int64{"cut": is.size, "cut of what is used": int64(len(is.data))} {
			at := size * int64(n+1) / 8
			out = append(out, harm{fmt.Sprintf("%s at %d", what, at), name, &fileBytes{is.data[:min(at, int64(len(is.data)))], at}, ""})
		}
	}
	for n := range flips {
		bits := 8 * len(is.data)
		if bits == 0 {
			break
		}
		bit := (bits*n + n*n) / flips % bits
		data := slices.Clone(is.data)
		data[bit/8] ^= 1 << (bit % 8)
		out = append(out, harm{fmt.Sprintf("bit %d of %d flipped", bit, bits), name, &fileBytes{data, is.size}, ""})
	}
	seen := map[string]bool{is.sum(): true}
	for i, dir := range s.older {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		old := readSparse(t, filepath.Join(dir, name))
		if !seen[old.sum()] {
			seen[old.sum()] = true
			out = append(out, harm{fmt.Sprintf("as of copy %d", i), name, &old, ""})
		}
	}
	return out
}

// outcomes counts the results of damages.
type outcomes struct{ whole, refused, mended int }

// TestDamage damages each file of a state in each way: the records are then either
// complete, or refused and unchanged; refused ones are repaired, with the losses reported.
func TestDamage(t *testing.T) {
	st := killedState(t)
	flips := kit.Rounds(2, 3, 64)
	sound := readState(t, st.dir)
	var all []harm
	for _, name := range slices.Sorted(maps.Keys(sound)) {
		all = append(all, st.harms(t, name, sound[name], flips)...)
	}
	for i, dir := range st.older {
		all = append(all, harm{fmt.Sprintf("all as of copy %d", i), "", nil, dir})
	}
	if !kit.Exhaustive() {
		var some []harm
		for n := 0; n < len(all); n += kit.Rounds(13, 7, 1) {
			some = append(some, all[n])
		}
		all = some
	}
	var count outcomes
	work := filepath.Join(t.TempDir(), "state")
	clean := false
	failed := 0
	for _, h := range append([]harm{{name: "nothing"}}, all...) {
		if !clean {
			copyState(t, st.dir, work)
		}
		clean = st.try(t, work, h, count.refused%kit.Rounds(5, 3, 1) == 0, sound, &count)
		if t.Failed() {
			if failed++; failed > 20 {
				return
			}
		}
	}
	t.Logf("%d damages of %d files: %d whole, %d refused, %d of them brought back", len(all), len(sound), count.whole, count.refused, count.mended)
	if count.whole == 0 || count.refused < count.whole/8 || count.mended == 0 {
		t.Error("that is not what damage does")
	}
}

// try damages a copy of a state and opens it. It reports whether the copy is unchanged.
func (s *state) try(t *testing.T, work string, h harm, mend bool, sound map[string]fileBytes, count *outcomes) bool {
	t.Helper()
	witness := readSparse(t, s.dir+".witness")
	witness.data = badgerkv.Retarget(witness.data, work)
	witness.write(t, work+".witness")
	switch {
	case h.all != "":
		copyState(t, h.all, work)
	case h.file == "":
	case h.to == nil:
		if err := os.Remove(filepath.Join(work, h.file)); err != nil {
			t.Fatal(err)
		}
	default:
		h.to.write(t, filepath.Join(work, h.file))
	}
	damaged := readState(t, work)
	opts := badgerkv.Options{Dir: work, Witness: work + ".witness"}
	kv, err := badgerkv.Open(t.Context(), opts)
	if err == nil {
		count.whole++
		s.verify(t, h, kv, nil)
		return false
	}
	count.refused++
	if !errors.Is(err, metadata.ErrCorrupt) {
		t.Errorf("%s of %s: Open = %v, want ErrCorrupt", h.name, h.file, err)
	}
	if h.file == "" && h.all == "" {
		t.Fatalf("a sound state is refused: %v", err)
	}
	same := func(a, b fileBytes) bool { return a.size == b.size && bytes.Equal(a.data, b.data) }
	if after := readState(t, work); !maps.EqualFunc(damaged, after, same) {
		t.Errorf("%s of %s: the refusal changed the directory", h.name, h.file)
	}
	if mend {
		count.mended++
		s.mend(t, h, opts)
		return false
	}
	if h.all != "" {
		return false
	}
	sound[h.file].write(t, filepath.Join(work, h.file))
	return true
}

// mend repairs a store, and checks all of it.
func (s *state) mend(t *testing.T, h harm, opts badgerkv.Options) {
	t.Helper()
	got, err := badgerkv.Salvage(t.Context(), opts, nil, metadata.Repair)
	if err != nil || got == nil {
		t.Errorf("%s of %s: Salvage = %v, %v", h.name, h.file, got, err)
		return
	}
	if _, err = os.Stat(got.Aside); err != nil {
		t.Errorf("the damaged records are not kept: %v", err)
	}
	if err = os.RemoveAll(got.Aside); err != nil {
		t.Error(err)
	}
	kv, err := badgerkv.Open(t.Context(), opts)
	if err != nil {
		t.Errorf("%s of %s: Open after Salvage: %v", h.name, h.file, err)
		return
	}
	if !kv.Cut() {
		t.Errorf("%s of %s: mended records are not said to be cut", h.name, h.file)
	}
	s.verify(t, h, kv, append(got.Gone, "")[:len(got.Gone)])
}

// verify compares the store's content with what was acknowledged, and closes the store. A
// difference is a silent loss unless a loss was reported; nil means complete.
func (s *state) verify(t *testing.T, h harm, kv *badgerkv.KV, gone []string) {
	t.Helper()
	ctx := t.Context()
	m, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Errorf("%s of %s: %v", h.name, h.file, errors.Join(err, kv.Close()))
		return
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	var problems []string
	for range 10 {
		var found []metadata.Problem
		if err := m.Check(ctx, func(p metadata.Problem) { found = append(found, p) }); err != nil {
			t.Errorf("%s of %s: Check: %v", h.name, h.file, err)
		}
		for _, p := range found {
			problems = append(problems, p.String())
			if err := m.Repair(ctx, p); err != nil && !errors.Is(err, metadata.ErrChanged) {
				t.Errorf("%s of %s: %v", h.name, h.file, err)
			}
		}
	}
	if gone == nil && len(problems) > 0 {
		t.Errorf("%s of %s: taken for whole, but %v", h.name, h.file, problems)
	}
	if m.NextIno() <= s.highst {
		t.Errorf("%s of %s: inode %d would be given again", h.name, h.file, m.NextIno())
	}
	if missing := s.missing(ctx, t, h, m); len(missing) > 0 && len(gone) == 0 {
		t.Errorf("%s of %s: a silent loss, %d files are not as acknowledged: %v; problems %v", h.name, h.file, len(missing), missing[:min(5, len(missing))], problems)
	}
}

// missing lists files that differ from what was acknowledged. A body of another file is an
// error whatever was damaged.
func (s *state) missing(ctx context.Context, t *testing.T, h harm, m *metadata.Store) (out []string) {
	t.Helper()
	dev, err := m.Lookup(ctx, metadata.RootIno, "host")
	if err != nil {
		return []string{err.Error()}
	}
	for i, f := range s.files {
		in, err := m.Lookup(ctx, dev.Ino, fmt.Sprintf("f%d", i))
		if f.gone {
			if !errors.Is(err, metadata.ErrNotExist) {
				out = append(out, fmt.Sprintf("f%d was removed, and is inode %d, %v", i, in.Ino, err))
			}
			continue
		}
		if err != nil || in.Ino != f.ino {
			out = append(out, fmt.Sprintf("f%d: inode %d, %v", i, in.Ino, err))
			continue
		}
		body, err := m.GetXattr(ctx, in.Ino, bodyAttr)
		switch {
		case errors.Is(err, metadata.ErrNoXattr):
			out = append(out, fmt.Sprintf("f%d: no body", i))
		case err != nil:
			out = append(out, fmt.Sprintf("f%d: %v", i, err))
		case bytes.Equal(body, bodyOf(i, 1)) && f.changed, bytes.Equal(body, bodyOf(i, 0)) && !f.changed:
		case bytes.Equal(body, bodyOf(i, 0)):
			out = append(out, fmt.Sprintf("f%d: an old body", i))
		default:
			t.Errorf("%s of %s: f%d has foreign bytes", h.name, h.file, i)
		}
	}
	return out
}
