package plan

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
)

func encode(t *testing.T, p *Plan) []byte {
	t.Helper()
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for _, s := range shapes(n) {
			s.Topology = "abc"
			someTasks(n, func(task Task) {
				for _, a := range Algorithms() {
					p, err := Compile(task, s, a)
					if err != nil {
						continue
					}
					q, err := Decode(encode(t, p), "abc")
					if err != nil {
						t.Fatal(err)
					}
					if !reflect.DeepEqual(p, q) {
						t.Errorf("%+v has become %+v", p, q)
					}
				}
			})
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	task := Task{Kind: AllReduce, Ranks: 4, Count: 100, Type: elem.Float16, Op: elem.Max}
	text := string(encode(t, compile(t, task, Shape{Topology: "abc"}, Ring)))
	for _, x := range []struct {
		name, from, to string
		want           error
	}{
		{"version", `"version": 1`, `"version": 2`, ErrStale},
		{"topology", `"abc"`, `"abd"`, ErrStale},
		{"programs", `"programs": "`, `"programs": "0`, ErrStale},
		{"count", `"count": 100`, `"count": 101`, ErrStale},
		{"kind", `"allreduce"`, `"allreduced"`, ErrWrong},
		{"type", `"float16"`, `"float17"`, ErrTask},
		{"type 0", `"float16"`, `"type 0"`, ErrTask},
		{"type that does not combine", `"float16"`, `"bool"`, ErrTask},
		{"operation", `"max"`, `"most"`, ErrTask},
		{"ranks", `"ranks": 4`, `"ranks": 65`, ErrTask},
		{"algorithm", `"ring"`, `"rings"`, ErrAlgorithm},
		{"algorithm of another task", `"ring"`, `"dissemination"`, ErrAlgorithm},
		{"field", `"scratch"`, `"scratches"`, ErrWrong},
		{"rest", "\n}\n", "\n}{}", ErrWrong},
		{"no JSON", "{", "[", ErrWrong},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			damaged := strings.Replace(text, x.from, x.to, 1)
			if damaged == text {
				t.Fatalf("there is no %s in %s", x.from, text)
			}
			if _, err := Decode([]byte(damaged), "abc"); !errors.Is(err, x.want) {
				t.Errorf("%v, not %v", err, x.want)
			}
		})
	}
	if _, err := Decode([]byte(text), "another"); !errors.Is(err, ErrStale) {
		t.Errorf("another topology: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, a := range []Algorithm{Ring, Chain, Hierarchical} {
		p, err := Compile(allReduce(4, 4000), Shape{Nodes: []int{0, 0, 1, 1}}, a)
		if err != nil {
			f.Fatal(err)
		}
		text, err := p.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Decode(text, "")
		if err != nil {
			return
		}
		again, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		q, err := Decode(again, "")
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%s has become %+v: %v", bytes.TrimSpace(text), q, err)
		}
		if p.Task.Ranks <= 8 {
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
