package judge

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// at returns an operation on the key k within a second of its own.
func at(second int, kind KeyKind, node string, value int, outcome Outcome) KeyOp {
	begin := time.Duration(second) * time.Second
	return KeyOp{Key: "k", Kind: kind, Node: node, Value: value, Outcome: outcome, Call: begin, Return: begin + time.Second/2}
}

// TestKeys checks histories written by hand.
func TestKeys(t *testing.T) {
	kit.Check(t)
	set := func(s int, node string, v int) KeyOp { return at(s, Set, node, v, Done) }
	get := func(s int, node string, v int) KeyOp { return at(s, Get, node, v, Done) }
	for _, tc := range []struct {
		name string
		ops  []KeyOp
		away []absence
		bad  bool
	}{
		{name: "set, read, removed", ops: []KeyOp{
			set(1, "a", 1), get(2, "b", 1), at(3, Exist, "c", 1, Done), at(4, Del, "c", 0, Done), get(5, "a", None), set(6, "b", 2), get(7, "a", 2),
		}},
		{name: "forked: set on two nodes", bad: true, ops: []KeyOp{set(1, "a", 1), set(2, "b", 2)}},
		{name: "forked: two values read", bad: true, ops: []KeyOp{
			set(1, "a", 1), at(2, Set, "b", 2, Unknown), get(3, "a", 1), get(4, "b", 2),
		}},
		{name: "forked at the end", bad: true, ops: []KeyOp{
			at(1, Set, "a", 1, Unknown), at(2, Set, "b", 2, Unknown), get(8, "a", 1), get(9, "b", 2), get(10, "a", 1),
		}},
		{name: "absent though set", bad: true, ops: []KeyOp{set(1, "a", 1), get(2, "b", None)}},
		{name: "said not to exist though set", bad: true, ops: []KeyOp{set(1, "a", 1), at(2, Exist, "b", None, Done)}},
		{name: "waited for nothing", bad: true, ops: []KeyOp{at(1, Wait, "a", 0, Done)}},
		{name: "back after it was removed", bad: true, ops: []KeyOp{set(1, "a", 1), at(2, Del, "b", 0, Done), get(3, "a", 1)}},
		{name: "a failed set that happened", ops: []KeyOp{at(1, Set, "a", 1, Unknown), get(2, "b", 1)}},
		{name: "a failed set that happened late", ops: []KeyOp{at(1, Set, "a", 1, Unknown), get(2, "b", None), get(3, "b", 1)}},
		{name: "a failed set that was taken back", ops: []KeyOp{at(1, Set, "a", 1, Unknown), get(2, "b", 1), get(3, "b", None)}},
		{name: "a failed removal", ops: []KeyOp{set(1, "a", 1), at(2, Del, "b", 0, Unknown), get(3, "b", 1), get(4, "b", None)}},
		{name: "a read that failed says nothing", ops: []KeyOp{set(1, "a", 1), at(2, Get, "b", None, Unknown), get(3, "b", 1)}},
		{name: "side by side", ops: []KeyOp{
			{Key: "k", Kind: Set, Node: "a", Value: 1, Outcome: Done, Call: time.Second, Return: 4 * time.Second},
			get(2, "b", None), get(3, "b", 1),
		}},
		{name: "a lease ends, and the key is another's", away: []absence{{"a", 2 * time.Second, 9 * time.Second}}, ops: []KeyOp{
			set(1, "a", 1), get(3, "b", None), set(4, "b", 2), get(5, "c", 2), get(6, "a", 1), get(10, "a", 2), get(11, "b", 2),
		}},
		{name: "a lease ends, and the key comes back", away: []absence{{"a", 2 * time.Second, 9 * time.Second}}, ops: []KeyOp{
			set(1, "a", 1), get(3, "b", None), get(10, "b", 1),
		}},
		{name: "set and removed without a lease", away: []absence{{"a", 2 * time.Second, 19 * time.Second}}, ops: []KeyOp{
			set(1, "a", 1), get(3, "b", None), get(4, "a", 1), at(5, Del, "a", 0, Done), set(6, "a", 2), get(7, "a", 2), get(8, "b", None),
			set(9, "b", 3), get(10, "a", 2), get(20, "a", 3),
		}},
		{name: "set without a lease, and both stay", bad: true, away: []absence{{"a", 2 * time.Second, 9 * time.Second}}, ops: []KeyOp{
			set(3, "a", 1), get(4, "b", None), set(5, "b", 2), get(10, "b", 2), get(11, "a", 1),
		}},
		{name: "a lease of another node", bad: true, away: []absence{{"c", 2 * time.Second, 9 * time.Second}}, ops: []KeyOp{
			set(1, "a", 1), get(3, "b", None),
		}},
		{name: "forked after a lease", bad: true, away: []absence{{"a", 2 * time.Second, 9 * time.Second}}, ops: []KeyOp{
			set(1, "a", 1), set(4, "b", 2), get(10, "a", 1), get(11, "b", 2),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k Keys
			for _, o := range tc.ops {
				k.Add(o)
			}
			for _, a := range tc.away {
				k.Away(a.node, a.from, a.to)
			}
			bad, undecided := k.Check()
			if (len(bad) > 0) != tc.bad || undecided != 0 {
				t.Errorf("%d undecided, found %v, want something: %t", undecided, bad, tc.bad)
			}
			var text bytes.Buffer
			if err := k.Write(&text); err != nil || strings.Count(text.String(), "\n") != k.Len() {
				t.Errorf("the history: %v\n%s", err, text.String())
			}
		})
	}
}

// properties returns the properties of the violations.
func properties(all []Violation) []string {
	var out []string
	for _, v := range all {
		out = append(out, v.Property)
	}
	return out
}

// TestPublications checks attempts written by hand.
func TestPublications(t *testing.T) {
	kit.Check(t)
	done := Receipt{Outcome: Done, Whole: true}
	for _, tc := range []struct {
		name    string
		offered bool
		all     []Receipt
		want    string
		open    bool
	}{
		{name: "received", offered: true, all: []Receipt{{}, done}},
		{name: "received, though offering it has failed", all: []Receipt{done}},
		{name: "neither offered nor received", all: []Receipt{{}}, open: true},
		{name: "lost", offered: true, all: []Receipt{{}, {}}, want: "publication lost", open: true},
		{name: "never tried", offered: true, want: "publication lost", open: true},
		{name: "with one that was killed after all bytes", offered: true, all: []Receipt{{Whole: true}, {}}, open: true},
		{name: "again, after one that was killed", offered: true, all: []Receipt{{Whole: true}, done}},
		{name: "twice", offered: true, all: []Receipt{done, done}, want: "publication received twice"},
		{name: "wrong bytes", offered: true, all: []Receipt{{Outcome: Done, Wrong: "byte 7 differs"}}, want: "publication with wrong bytes"},
		{name: "a part", offered: true, all: []Receipt{{Outcome: Done}}, want: "publication with wrong bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Publications
			id := p.New("a")
			if tc.offered {
				p.Offered(id)
			}
			for _, r := range tc.all {
				p.Received(id, r)
			}
			if open := p.Open(); (len(open) > 0) != tc.open {
				t.Errorf("open are %v", open)
			}
			bad, counts := p.Check()
			if got := strings.Join(properties(bad), ", "); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
			if n := counts.Lost + counts.Twice + counts.Wrong; n != len(bad) || counts.Offered != 1 {
				t.Errorf("counts %+v of %d violations", counts, len(bad))
			}
			var text bytes.Buffer
			if err := p.Write(&text); err != nil || strings.Count(text.String(), "\n") != 1 {
				t.Errorf("the history: %v\n%s", err, text.String())
			}
		})
	}
}

// TestVersions compares contents with versions.
func TestVersions(t *testing.T) {
	kit.Check(t)
	const size = 10_000
	same := func(uint64) int { return size }
	content := func(seed uint64) []byte { return kit.Bytes(seed, 0, size) }
	half := slices.Concat(content(1)[:size/2], content(2)[size/2:])
	var v Versions
	v.Set(1)
	v.Try(2)
	for name, tc := range map[string]struct {
		got        []byte
		bad, mixed bool
	}{
		"old":              {got: content(1)},
		"new":              {got: content(2)},
		"another":          {got: content(3), bad: true, mixed: true},
		"some of each":     {got: half, bad: true},
		"short":            {got: content(1)[:size-1], bad: true},
		"moved by a byte":  {got: append(content(1)[1:], 0), bad: true, mixed: true},
		"one bit is wrong": {got: flipped(content(1), 777), bad: true, mixed: true},
	} {
		if bad := v.Content(name, tc.got, same); (len(bad) > 0) != tc.bad {
			t.Errorf("%s as a whole: %v", name, bad)
		}
		if bad := v.Mixed(name, 0, tc.got); (len(bad) > 0) != tc.mixed {
			t.Errorf("%s in place: %v", name, bad)
		}
	}
	v.Set(3)
	if bad := v.Content("late", content(2), same); len(bad) > 0 {
		t.Errorf("a late change: %v", bad)
	}
	if bad := v.Content("older", content(1), same); len(bad) == 0 {
		t.Error("bytes of before the last change pass")
	}
	v.Set(4)
	if bad := v.Content("too late", content(2), same); len(bad) == 0 {
		t.Error("a change that failed two changes ago passes")
	}
	if v.Absent || !v.Known() {
		t.Errorf("a file that was written: %+v", v)
	}
	v.TryRemove()
	v.Set(5)
	if !v.Absent {
		t.Error("a late removal is forgotten")
	}
	v.Set(6)
	if v.Absent {
		t.Error("a removal that failed two changes ago is not forgotten")
	}
	v.Remove()
	if bad := v.Content("removed", content(6), same); !v.Absent || len(bad) == 0 {
		t.Error("a file that was removed passes")
	}
}

// flipped returns a copy of p with one bit changed.
func flipped(p []byte, at int) []byte {
	p[at] ^= 1
	return p
}

// TestCollective checks all-reduces.
func TestCollective(t *testing.T) {
	kit.Check(t)
	const count = 5000
	before := [][]byte{Numbers(1, count), Numbers(2, count), Numbers(3, count)}
	sum := Sum(before)
	half := slices.Concat(sum[:len(sum)/2], before[1][len(sum)/2:])
	for name, tc := range map[string]struct {
		outcome Outcome
		after   [][]byte
		bad     bool
	}{
		"all":                      {Done, [][]byte{sum, sum, sum}, false},
		"none":                     {Unknown, before, false},
		"a node has died":          {Unknown, [][]byte{sum, before[1], sum}, false},
		"success without one":      {Done, [][]byte{sum, before[1], sum}, true},
		"success without any":      {Done, before, true},
		"half of a file":           {Unknown, [][]byte{sum, half, sum}, true},
		"half of a file, success":  {Done, [][]byte{sum, half, sum}, true},
		"the sum of two":           {Unknown, [][]byte{Sum(before[:2]), before[1], before[2]}, true},
		"another rank's old bytes": {Unknown, [][]byte{before[1], before[1], before[2]}, true},
		"cut":                      {Unknown, [][]byte{sum[:100], before[1], before[2]}, true},
	} {
		if bad := Collective(name, tc.outcome, before, tc.after); (len(bad) > 0) != tc.bad {
			t.Errorf("%s: %v", name, bad)
		}
	}
}
