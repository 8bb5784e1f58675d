package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// fakeClient records its calls.
type fakeClient struct {
	hetero.Client

	registered, gone int
	refuse           map[string]error // files that are not registered
	calls            [][]string
	lists            []hetero.DeviceBlobList
}

func (f *fakeClient) PreRegister(_ context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	if err := f.refuse[filepath.Base(m.File.Name())]; err != nil {
		return 0, err
	}
	f.registered++
	return hetero.MemoryID(f.registered), nil
}

func (f *fakeClient) Unregister(context.Context, hetero.MemoryID) error {
	f.gone++
	return nil
}

func (f *fakeClient) move(_ context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
	f.calls, f.lists = append(f.calls, keys), append(f.lists, lists...)
	results := make(hetero.Results, len(keys))
	for i, key := range keys {
		results[i] = hetero.Result{Key: key, Skipped: strings.HasPrefix(key, "skip")}
		if strings.HasPrefix(key, "bad") {
			results[i].Err = hetero.ErrNoMemory
		}
	}
	return results, results.Outcome()
}

// moves opens a file for each key.
func moves(t *testing.T, pairs []keyPath, device devices.Name) []hostMove {
	t.Helper()
	dir := t.TempDir()
	out := make([]hostMove, len(pairs))
	for i, p := range pairs {
		f, err := os.Create(filepath.Join(dir, p.key))
		if err != nil {
			t.Fatal(err)
		}
		out[i] = hostMove{place: i, file: f, device: device, sizes: []devices.Size{4096, 8}}
	}
	return out
}

func TestHostMoves(t *testing.T) {
	kit.Check(t)
	pairs := []keyPath{{"a", "x"}, {"bad", "x"}, {"skip", "x"}, {"refused", "x"}, {"b", "x"}}
	var out, errs bytes.Buffer
	a := keyVerbs{&app{Env: Env{Stdout: &out, Stderr: &errs}}}
	f := &fakeClient{refuse: map[string]error{"refused": hetero.ErrNotAuthorized}}
	r := a.newKeyReport("d2h", pairs, d2hLine)
	ended := map[int]error{}
	h := &hostMoves{c: f, r: r, call: f.move, ended: func(v *hostMove, one hetero.Result) { ended[v.place] = one.Err }}
	h.run(t.Context(), append(moves(t, pairs[:4], "sim0"), func() hostMove {
		v := moves(t, pairs[4:], "sim1")[0]
		v.place = 4
		return v
	}()))
	if err := r.finish(t.Context(), false, nil); exitCode(err) != exitPartial {
		t.Errorf("exit code %d", exitCode(err))
	}
	if want := [][]string{{"a", "bad", "skip"}, {"b"}}; !reflect.DeepEqual(f.calls, want) {
		t.Errorf("calls %v, want %v", f.calls, want)
	}
	want := hetero.DeviceBlobList{Device: "sim0", Blobs: []hetero.Blob{{Memory: 2, Size: 4096}, {Memory: 2, Off: 4096, Size: 8}}}
	if !reflect.DeepEqual(f.lists[1], want) {
		t.Errorf("list %+v, want %+v", f.lists[1], want)
	}
	if f.gone != 4 || f.registered != 4 {
		t.Errorf("%d registered, %d let go", f.registered, f.gone)
	}
	if len(ended) != 5 || !errors.Is(ended[1], hetero.ErrNoMemory) || !errors.Is(ended[3], hetero.ErrNotAuthorized) {
		t.Errorf("ended: %v", ended)
	}
	wantOut := "x -> a: 4104 bytes (4.0 KiB)\nskip: skipped, it exists already\nx -> b: 4104 bytes (4.0 KiB)\n2 keys: 8208 bytes "
	if !strings.HasPrefix(out.String(), wantOut) {
		t.Errorf("%q, want %q", out.String(), wantOut)
	}
	wantErrs := "hmcfs d2h: key \"refused\": not permitted for this user; run it as the owner of the file, or as root\n" +
		"hmcfs d2h: key \"bad\": out of memory; hmcfs status shows how much is free\n"
	if errs.String() != wantErrs {
		t.Errorf("%q, want %q", errs.String(), wantErrs)
	}
}

// TestHostMovesStopped has a signal end a call: nothing is reported about its keys.
func TestHostMovesStopped(t *testing.T) {
	kit.Check(t)
	pairs := []keyPath{{"a", "x"}, {"b", "x"}}
	var out, errs bytes.Buffer
	a := keyVerbs{&app{Env: Env{Stdout: &out, Stderr: &errs}}}
	f := &fakeClient{}
	r := a.newKeyReport("h2d", pairs, nil)
	ctx, cancel := context.WithCancel(t.Context())
	h := &hostMoves{c: f, r: r, call: func(context.Context, []string, []hetero.DeviceBlobList) (hetero.Results, error) {
		cancel()
		return nil, hetero.ErrInterrupted
	}}
	h.run(ctx, moves(t, pairs, "sim0"))
	if err := r.finish(ctx, false, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if errs.Len() != 0 || out.Len() != 0 || f.gone != 2 || r.rows[1].Code != "interrupted" {
		t.Errorf("%q, %q, %d let go, %+v", out.String(), errs.String(), f.gone, r.rows)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	var all []hostMove
	for i := range 2*moveKeys + 1 {
		all = append(all, hostMove{place: i, device: devices.Name(fmt.Sprintf("sim%d", i%2)), sizes: []devices.Size{1}})
	}
	for range 3 {
		all = append(all, hostMove{place: len(all), device: "sim2", sizes: []devices.Size{moveBytes / 2, 8}})
	}
	seen := map[int]bool{}
	var got []int
	for _, b := range batches(all) {
		got = append(got, len(b))
		for _, v := range b {
			if seen[v.place] || v.device != b[0].device {
				t.Errorf("%+v twice, or with %+v", v, b[0])
			}
			seen[v.place] = true
		}
	}
	if want := []int{moveKeys, moveKeys, 1, 1, 1, 1}; !reflect.DeepEqual(got, want) || len(seen) != len(all) {
		t.Errorf("batches of %v, want %v; %d of %d", got, want, len(seen), len(all))
	}
}

func TestBlobsOf(t *testing.T) {
	t.Parallel()
	sizes, err := parseBlobs("1MiB, 512,8")
	if err != nil || blobsText(sizes) != "1048576,512,8" {
		t.Errorf("%v, %v", sizes, err)
	}
	for _, bad := range []string{"", ",", "1,", "0", "1,0", "x"} {
		if _, err = parseBlobs(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if got, berr := blobsOf("f", 1<<20+520, sizes); berr != nil || len(got) != 3 {
		t.Errorf("%v, %v", got, berr)
	}
	if got, berr := blobsOf("f", 7, nil); berr != nil || len(got) != 1 || got[0] != 7 {
		t.Errorf("%v, %v", got, berr)
	}
	if _, err = blobsOf("f", 7, sizes); !errors.Is(err, hetero.ErrShape) {
		t.Errorf("sizes that do not add up: %v", err)
	}
	if _, err = blobsOf("f", 0, nil); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("an empty file: %v", err)
	}
}
