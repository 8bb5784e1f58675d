package kvtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func testScan(t *testing.T, kv metadata.KV) {
	put(t, kv, "a", "0", "b", "1", "b\x00", "2", "b1", "3", "b\xff", "4", "b\xff\xff", "5", "c", "6",
		"\xff", "7", "\xff\xff", "8")
	tests := []struct {
		name, prefix, from string
		limit              int
		want               string
	}{
		{"all", "", "", 0, "012345678"},
		{"prefix", "b", "", 0, "12345"},
		{"prefix is a key with one longer", "b\xff", "", 0, "45"},
		{"highest prefix", "\xff", "", 0, "78"},
		{"no such prefix", "bb", "", 0, ""},
		{"from is a key", "b", "b1", 0, "345"},
		{"from lies between keys", "b", "b0", 0, "345"},
		{"from lies before the prefix", "b", "a", 0, "12345"},
		{"from lies after the prefix", "b", "c", 0, ""},
		{"limit", "b", "b\x00", 2, "23"},
		{"from without prefix", "", "b\xff\x00", 0, "5678"},
	}
	for _, test := range tests {
		mustView(t, kv, func(tx metadata.KVTxn) error {
			pairs, err := collect(tx, test.prefix, test.from, test.limit)
			var got strings.Builder
			for _, p := range pairs {
				got.WriteString(p[1])
			}
			if got.String() != test.want {
				t.Errorf("%s: got %q, want %q", test.name, got.String(), test.want)
			}
			return err
		})
	}
	boom := errors.New("boom")
	calls := 0
	err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		return tx.Scan([]byte("b"), nil, func(_, _ []byte) (bool, error) {
			calls++
			return true, boom
		})
	})
	if !errors.Is(err, boom) || calls != 1 {
		t.Errorf("failing scan = %v after %d calls", err, calls)
	}
}

func testScanOwnWrites(t *testing.T, kv metadata.KV) {
	put(t, kv, "p1", "old1", "p3", "old3", "p5", "old5")
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		err := errors.Join(tx.Set([]byte("p2"), []byte("new2")), tx.Delete([]byte("p3")),
			tx.Set([]byte("p5"), []byte("new5")), tx.Set([]byte("p6"), []byte("new6")),
			tx.Delete([]byte("p6")))
		if err != nil {
			return err
		}
		pairs, err := collect(tx, "p", "p1", 0)
		if got := fmt.Sprint(pairs); got != "[[p1 old1] [p2 new2] [p5 new5]]" || err != nil {
			t.Errorf("scan with own writes = %s, %v", got, err)
		}
		// A scan may read, and the transaction continues after it.
		err = tx.Scan([]byte("p"), nil, func(key, value []byte) (bool, error) {
			again, gerr := tx.Get(key)
			if string(again) != string(value) {
				t.Errorf("Get within Scan = %q, want %q", again, value)
			}
			return true, gerr
		})
		return errors.Join(err, tx.Set([]byte("p7"), []byte("new7")))
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		pairs, err := collect(tx, "p", "", 0)
		if got := fmt.Sprint(pairs); got != "[[p1 old1] [p2 new2] [p5 new5] [p7 new7]]" {
			t.Errorf("after the commit: %s", got)
		}
		return err
	})
}

func testScanRandom(t *testing.T, kv metadata.KV) {
	r := newRand(t)
	model := map[string]string{}
	alphabet := []byte{0, 1, 'a', 'b', 0xfe, 0xff}
	randomKey := func(least int) string {
		b := make([]byte, least+r.IntN(5))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	for round := range 20 {
		changeRandomly(t, kv, model, 40, func() (key string, value []byte) {
			key = randomKey(1)
			if r.IntN(4) == 0 {
				return key, nil
			}
			return key, fmt.Append(nil, round, r.Uint32())
		})
		prefix, from, limit := randomKey(0), randomKey(0), r.IntN(10)
		var expect [][2]string
		for k, v := range model {
			if strings.HasPrefix(k, prefix) && k >= from {
				expect = append(expect, [2]string{k, v})
			}
		}
		slices.SortFunc(expect, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
		if limit > 0 {
			expect = expect[:min(limit, len(expect))]
		}
		mustView(t, kv, func(tx metadata.KVTxn) error {
			got, err := collect(tx, prefix, from, limit)
			if !slices.Equal(got, expect) {
				t.Errorf("scan prefix %q from %q limit %d\n got %q\nwant %q", prefix, from, limit, got, expect)
			}
			return err
		})
	}
}
