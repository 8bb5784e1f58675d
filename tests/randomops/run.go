package randomops

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Target describes the directories in which a program runs.
type Target struct {
	// A and B are the directories with which paths begin. They must be empty.
	A, B string
	// Crash ends the filesystem's process and starts it again; all handles are closed. Nil
	// does nothing.
	Crash func() error
}

// Step is the result of one operation.
type Step struct {
	// Text contains the errno, or describes what was moved.
	Text string
	// Data contains the bytes that were read.
	Data []byte
}

// runner is the state of one run of a program.
type runner struct {
	target Target
	files  [slots]int
	maps   [slots]mapping
}

// mapping is a shared map of a file.
type mapping struct {
	fd   int
	data []byte
}

// none marks an empty slot.
const none = -1

// Run runs a program, and returns one step for each operation and further ones for the
// final state. It closes all handles and maps.
func Run(p Program, target Target) []Step {
	r := &runner{target: target}
	for i := range slots {
		r.files[i], r.maps[i].fd = none, none
	}
	defer r.closeAll()
	verbs := Verbs()
	steps := make([]Step, 0, len(p)+1+slots)
	for _, o := range p {
		steps = append(steps, verbs[o.Verb].do(r, o))
	}
	steps = append(steps, doTree(r, Op{}))
	for i := range slots {
		steps = append(steps, r.whole(i))
	}
	return steps
}

// closeAll empties all slots.
func (r *runner) closeAll() {
	for i := range slots {
		r.unmap(i)
		if r.files[i] != none {
			_ = unix.Close(r.files[i]) // the daemon may have died
			r.files[i] = none
		}
	}
}

// unmap empties one slot of a map.
func (r *runner) unmap(i int) {
	m := &r.maps[i]
	if m.fd == none {
		return
	}
	_ = unix.Munmap(m.data) // the arguments are valid
	_ = unix.Close(m.fd)    // only verbs sync
	*m = mapping{fd: none}
}

// path returns the real path of a path of the program.
func (r *runner) path(name string) string {
	top, rest, _ := strings.Cut(name, "/")
	if top == "B" {
		return filepath.Join(r.target.B, rest)
	}
	return filepath.Join(r.target.A, rest)
}

// Diff is the first difference of two runs.
type Diff struct {
	// Index is the index of the operation; indices after the last one belong to the final
	// state.
	Index     int
	What      string
	Want, Got Step
}

// Compare returns the first difference of two runs of a program, or nil.
func Compare(p Program, want, got []Step) *Diff {
	for i := range want {
		if want[i].Text == got[i].Text && bytes.Equal(want[i].Data, got[i].Data) {
			continue
		}
		what := "at the end"
		if i < len(p) {
			what = p[i].String()
		}
		return &Diff{Index: i, What: what, Want: want[i], Got: got[i]}
	}
	return nil
}

// String describes the difference.
func (d *Diff) String() string {
	text := fmt.Sprintf("operation %d: %s", d.Index+1, d.What)
	if d.Want.Text != d.Got.Text {
		return text + "\nwant: " + differing(d.Want.Text, d.Got.Text) + "\ngot:  " + differing(d.Got.Text, d.Want.Text)
	}
	at := kit.FirstDiff(d.Want.Data, d.Got.Data)
	return fmt.Sprintf("%s\n%s\nbyte %d of %d: want %x, got %x", text, d.Want.Text, at, len(d.Want.Data),
		around(d.Want.Data, at), around(d.Got.Data, at))
}

// differing returns the lines of text that other does not contain.
func differing(text, other string) string {
	theirs := map[string]bool{}
	for line := range strings.Lines(other) {
		theirs[line] = true
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !theirs[line] {
			b.WriteString(line)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// around returns a short piece of data from an index on.
func around(data []byte, at int) []byte {
	const piece = 16
	at = min(at, len(data))
	return data[at:min(at+piece, len(data))]
}

// answer returns a step without data: the errno, or the text.
func answer(err error, format string, args ...any) Step {
	if err != nil {
		return Step{Text: errnoName(err)}
	}
	return Step{Text: fmt.Sprintf(format, args...)}
}

// errnoName returns the symbolic name of an errno.
func errnoName(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// empty returns the step of an operation on an empty slot.
func empty() Step { return Step{Text: "empty slot"} }

// again repeats a call as long as it is interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
