package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// version is the version of encoded plans. It changes when the steps of an algorithm
// change.
const version = 1

// maxText bounds an encoded plan, in bytes.
const maxText = 1 << 20

// encoded is a plan as text. Fields that follow from others are for people, and to detect
// whether the algorithms still make the same programs.
type encoded struct {
	Version   int         `json:"version"`
	Algorithm Algorithm   `json:"algorithm"`
	Task      encodedTask `json:"task"`
	Shape     Shape       `json:"shape"`
	// Ring lists the ranks in the order of the ring.
	Ring []Rank `json:"ring"`
	// Slices holds the elements of the whole that each rank owns.
	Slices  []Range `json:"slices"`
	Scratch uint64  `json:"scratch"`
	// Programs is the digest of the steps of all ranks.
	Programs string `json:"programs"`
}

type encodedTask struct {
	Kind    Kind   `json:"kind"`
	Ranks   int    `json:"ranks"`
	Count   uint64 `json:"count"`
	Type    string `json:"type"`
	Op      string `json:"op,omitempty"`
	Root    Rank   `json:"root,omitempty"`
	InPlace bool   `json:"in_place,omitempty"`
	Strict  bool   `json:"strict,omitempty"`
}

// Encode returns the plan as JSON, for people and for Decode.
func (p *Plan) Encode() ([]byte, error) {
	t := &p.Task
	e := encoded{
		Version:   version,
		Algorithm: p.Algorithm,
		Task: encodedTask{
			Kind: t.Kind, Ranks: t.Ranks, Count: t.Count, Type: t.Type.String(), Root: t.Root,
			InPlace: t.InPlace, Strict: t.Strict,
		},
		Shape:    p.Shape,
		Ring:     p.Shape.order(t.Ranks),
		Scratch:  p.Scratch,
		Programs: p.Digest(),
	}
	if t.Op != 0 {
		e.Task.Op = t.Op.String()
	}
	for r := range t.Ranks {
		e.Slices = append(e.Slices, t.share(Rank(r)))
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return append(text, '\n'), nil
}

// Digest returns a hash that identifies the programs of all ranks.
func (p *Plan) Digest() string {
	h := sha256.New()
	for r := range p.Task.Ranks {
		for _, s := range p.Program(Rank(r)) {
			// Writing to a hash never fails.
			_, _ = fmt.Fprintln(h, r, s)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Decode parses a plan. It validates the plan, but does not prove it: see Check.
//
// Errors: ErrStale if the plan is of another version, was made for another topology than
// the given one, or if its programs differ from those compiled now; ErrTask and
// ErrAlgorithm if there can be no such plan; ErrWrong if the text is not a plan.
func Decode(text []byte, topology string) (*Plan, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: %d bytes are too long for a plan", ErrWrong, len(text))
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if v.Version != version {
		return nil, fmt.Errorf("%w: it has version %d instead of %d", ErrStale, v.Version, version)
	}
	var e encoded
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the plan is followed by more text", ErrWrong)
	}
	if e.Shape.Topology != topology {
		return nil, fmt.Errorf("%w: topology %.80q instead of %.80q", ErrStale, e.Shape.Topology, topology)
	}
	t, err := e.Task.decode()
	if err != nil {
		return nil, err
	}
	p, err := Compile(t, e.Shape, e.Algorithm)
	if err != nil {
		return nil, err
	}
	if p.Digest() != e.Programs {
		return nil, fmt.Errorf("%w: its programs differ from those compiled now", ErrStale)
	}
	return p, nil
}

func (e *encodedTask) decode() (Task, error) {
	t := Task{Kind: e.Kind, Ranks: e.Ranks, Count: e.Count, Root: e.Root, InPlace: e.InPlace, Strict: e.Strict}
	var unknown, noOp error
	t.Type, unknown = elem.ParseType(e.Type)
	if e.Op != "" {
		t.Op, noOp = elem.ParseOp(e.Op)
	}
	// Only the names that Encode writes are valid.
	if unknown != nil || noOp != nil || t.Type.String() != e.Type || e.Op != "" && t.Op.String() != e.Op {
		return t, fmt.Errorf("%w: unknown type %.40q or operation %.40q", ErrTask, e.Type, e.Op)
	}
	return t, nil
}
