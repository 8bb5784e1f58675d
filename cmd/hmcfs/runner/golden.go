package runner

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// shown bounds the differences reported for a buffer.
const shown = 5

// Mismatch is an element that differs from the expected value.
type Mismatch struct {
	Rank   int    `json:"rank"`
	Buffer string `json:"buffer"`
	Index  uint64 `json:"index"`
	Got    string `json:"got"`
	Want   string `json:"want"`
}

// String formats the mismatch for people.
func (m Mismatch) String() string {
	return fmt.Sprintf("rank %d %s[%d]: got %s, want %s", m.Rank, m.Buffer, m.Index, m.Got, m.Want)
}

// Verdict is the result of comparing the outputs with the expected values.
type Verdict struct {
	// Compared and Wrong count elements.
	Compared uint64 `json:"compared"`
	Wrong    uint64 `json:"wrong"`
	// First holds the first mismatches of each buffer.
	First []Mismatch `json:"first,omitempty"`
}

// Passed reports that all elements are as expected.
func (v *Verdict) Passed() bool { return v.Wrong == 0 }

// verify compares the outputs of this host's ranks that are to be verified: the root, or
// all. The expected values depend on the plan alone, and must be complete for each buffer.
func (j *job) verify(ctx context.Context, tell func(*Verdict) error) error {
	for rank := j.First; rank < j.First+j.Count; rank++ {
		if j.plan.config.Verify != verifyAll && rank != j.plan.config.Root {
			continue
		}
		want, err := j.bring(ctx, "golden", j.plan.config.Golden, j.plan.config.Outputs, rank)
		if err != nil {
			return err
		}
		for _, name := range j.plan.config.Outputs {
			b := j.plan.buffer(name)
			got, err := j.read(rank, b)
			if err != nil {
				return err
			}
			if err = tell(j.compare(rank, b, got, want[name])); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the verdict of another buffer or host.
func (v *Verdict) add(more *Verdict) {
	v.Compared += more.Compared
	v.Wrong += more.Wrong
	v.First = append(v.First, more.First...)
}

// compare compares one buffer, element by element.
func (j *job) compare(rank int, b *Buffer, got, want []byte) *Verdict {
	v, size := &Verdict{}, b.kind.Size()
	for i := range b.Count {
		g, w := got[i*size:(i+1)*size], want[i*size:(i+1)*size]
		v.Compared++
		if j.plan.same(b, g, w) {
			continue
		}
		v.Wrong++
		if v.Wrong <= shown {
			v.First = append(v.First, Mismatch{Rank: rank, Buffer: b.Name, Index: i, Got: show(g, b.kind), Want: show(w, b.kind)})
		}
	}
	return v
}

// same reports whether an element is as expected: integers exactly, floating point values
// like NumPy's isclose, in which NaN is close to nothing.
func (p *Plan) same(b *Buffer, got, want []byte) bool {
	if !b.kind.Floating() {
		return bytes.Equal(got, want)
	}
	g, w := elem.GetFloat(b.kind, got), elem.GetFloat(b.kind, want)
	if math.IsInf(w, 0) || math.IsInf(g, 0) {
		return g == w
	}
	return math.Abs(g-w) <= p.Atol+p.Rtol*math.Abs(w)
}
