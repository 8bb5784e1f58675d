package cluster

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
)

func TestMergeKeys(t *testing.T) {
	entries := func(node string, names ...string) (out []objects.KeyEntry) {
		for _, name := range names {
			out = append(out, objects.KeyEntry{Key: name, Node: node})
		}
		return out
	}
	for _, c := range []struct {
		own, others, want []string
		limit             int
	}{
		{nil, nil, nil, 4},
		{[]string{"a", "c"}, nil, []string{"a", "c"}, 4},
		{nil, []string{"a", "c"}, []string{"a", "c"}, 4},
		{[]string{"b", "d"}, []string{"a", "c", "e"}, []string{"a", "b", "c", "d", "e"}, 5},
		{[]string{"b", "d"}, []string{"a", "c", "e"}, []string{"a", "b"}, 2},
		{[]string{"a", "b"}, []string{"a", "b", "c"}, []string{"a", "b", "c"}, 3},
	} {
		var got []string
		for _, e := range mergeKeys(entries("", c.own...), entries("b", c.others...), c.limit) {
			got = append(got, e.Key)
			if (e.Node == "") != slices.Contains(c.own, e.Key) {
				t.Errorf("%s of %v and %v is taken for the other's", e.Key, c.own, c.others)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v and %v, at most %d: %v, want %v", c.own, c.others, c.limit, got, c.want)
		}
	}
}
