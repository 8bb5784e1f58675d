package frames_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// fileCalls are calls on files that use every field.
func fileCalls() []frames.FileCall {
	return []frames.FileCall{
		{},
		{Name: "cuda0/a", Flags: 1, Mode: 0o644},
		{Handle: 1, Off: 1 << 63, Size: 1<<64 - 1, Memory: 3, MemoryOff: 4},
		{Name: "a", Other: "user.x", Data: []byte("value")},
		{Name: strings.Repeat("n", frames.MaxFileName), Other: "", Data: bytes.Repeat([]byte{0, 1}, 500)},
	}
}

func fileCall(t testing.TB, q frames.FileCall) []byte {
	t.Helper()
	b, err := frames.AppendFileCall(nil, &q)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, q.Data...)
}

// TestFileCallRoundTrip decodes every call, and refuses each that was cut within its fixed part or
// its names.
func TestFileCallRoundTrip(t *testing.T) {
	for i, want := range fileCalls() {
		body := fileCall(t, want)
		var got frames.FileCall
		if err := frames.ParseFileCall(body, &got, new(frames.Names)); err != nil || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("call %d: %v", i, err)
		}
		want.Data, got.Data = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("call %d: %+v is read as %+v", i, want, got)
		}
		for n := range 56 + len(want.Name) + len(want.Other) {
			if err := frames.ParseFileCall(body[:n], &got, new(frames.Names)); !errors.Is(err, frames.ErrFrame) {
				t.Errorf("call %d, cut to %d bytes: %v", i, n, err)
			}
		}
	}
	for _, bad := range []frames.FileCall{
		{Name: strings.Repeat("n", frames.MaxFileName+1)},
		{Other: strings.Repeat("n", frames.MaxFileName+1)},
		{Data: make([]byte, frames.MaxFileData+1)},
	} {
		if _, err := frames.AppendFileCall(nil, &bad); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("too long: %v", err)
		}
	}
}

// TestFileBytes compares the encoding with the example of docs/wire.md.
func TestFileBytes(t *testing.T) {
	call := frames.Begin(nil, frames.KindFile, uint8(frames.FileRead), 7)
	call, err := frames.AppendFileCall(call, &frames.FileCall{Handle: 3, Off: 4096, Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err = frames.Finish(call, 0); err != nil {
		t.Fatal(err)
	}
	answer := frames.AppendFileAnswer(frames.Begin(nil, frames.KindFileAnswer, 0, 7), &frames.FileAnswer{N: 5})
	answer = append(answer, "hello"...)
	if err = frames.Finish(answer, 0); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string][]byte{
		"38000000 09 04 0000 0700000000000000 00000000 00000000 0300000000000000 0010000000000000 0500000000000000" +
			"0000000000000000 0000000000000000 0000 0000 00000000": call,
		"1d000000 0a 00 0000 0700000000000000 00000000 00000000 0000000000000000 0500000000000000 68656c6c6f": answer,
	} {
		if text := hex.EncodeToString(got); text != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s, want %s", text, want)
		}
	}
}

func stats() []syscall.Stat_t {
	return []syscall.Stat_t{{}, {
		Ino: 1 << 62, Size: 1 << 40, Blocks: 5, Mode: syscall.S_IFREG | 0o4755, Nlink: 7, Uid: 8, Gid: 9, Rdev: 10, Blksize: 11,
		Atim: syscall.Timespec{Sec: -1, Nsec: 999_999_999}, Mtim: syscall.Timespec{Sec: 1 << 40, Nsec: 1}, Ctim: syscall.Timespec{Sec: 2, Nsec: 3},
	}}
}

// TestFileDataRoundTrip decodes what answers and changes carry.
func TestFileDataRoundTrip(t *testing.T) {
	for _, want := range stats() {
		if got, err := frames.ParseStat(frames.AppendStat(nil, &want)); err != nil || got != want {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
	}
	change := frames.Change{
		Set: frames.ChangeMode | frames.ChangeMtime, Mode: 1, UID: 2, GID: 3, Size: 4,
		Atime: syscall.Timespec{Sec: -5, Nsec: 1<<30 - 1}, Mtime: syscall.Timespec{Sec: 6, Nsec: 7},
	}
	if got, err := frames.ParseChange(frames.AppendChange(nil, &change)); err != nil || got != change {
		t.Errorf("%+v is read as %+v, %v", change, got, err)
	}
	usage := devices.Usage{Total: 3, Used: 2, Free: 1}
	if got, err := frames.ParseUsage(frames.AppendUsage(nil, usage)); err != nil || got != usage {
		t.Errorf("%+v is read as %+v, %v", usage, got, err)
	}
	want := []frames.FileEntry{{Next: 1, Ino: 1 << 62, Type: syscall.S_IFDIR, Name: "a"}, {Next: 2, Type: syscall.S_IFLNK, Name: strings.Repeat("n", 255)}}
	var b []byte
	for i := range want {
		b, _ = frames.AppendFileEntry(b, len(b), &want[i])
	}
	if got, err := frames.ParseFileEntries(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v is read as %+v, %v", want, got, err)
	}
	if _, ok := frames.AppendFileEntry(nil, frames.MaxFileData-18, &want[0]); ok {
		t.Error("an entry was added beyond the bound")
	}
}

// FuzzFileCall decodes arbitrary bodies: an accepted one is encoded to the same bytes again.
func FuzzFileCall(f *testing.F) {
	for _, q := range fileCalls() {
		f.Add(fileCall(f, q))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var q frames.FileCall
		if err := frames.ParseFileCall(body, &q, new(frames.Names)); err != nil {
			if !errors.Is(err, frames.ErrFrame) {
				t.Errorf("%v", err)
			}
			return
		}
		if again := fileCall(t, q); !bytes.Equal(again, body) {
			t.Errorf("% x is encoded as % x", body, again)
		}
	})
}

// FuzzFileData decodes arbitrary bytes as an answer, and as each kind of data: what is accepted is
// the same after it was encoded again.
func FuzzFileData(f *testing.F) {
	f.Add(append(frames.AppendFileAnswer(nil, &frames.FileAnswer{Errno: 2, Handle: 3, N: 4}), "text"...))
	for _, st := range stats() {
		f.Add(frames.AppendStat(nil, &st))
	}
	f.Add(frames.AppendChange(nil, &frames.Change{Set: 63, Size: 1 << 63, Atime: syscall.Timespec{Nsec: 1<<30 - 1}}))
	f.Add(frames.AppendUsage(nil, devices.Usage{Total: 1}))
	f.Add(frames.AppendRanges(nil, []frames.Range{{From: 1, End: 2}, {From: 7, End: 1 << 63}}))
	entry, _ := frames.AppendFileEntry(nil, 0, &frames.FileEntry{Next: 1, Ino: 2, Type: syscall.S_IFREG, Name: "a"})
	f.Add(append(entry, entry...))
	f.Fuzz(func(t *testing.T, body []byte) {
		same := func(what string, again []byte, err error) {
			if err != nil && !errors.Is(err, frames.ErrFrame) {
				t.Errorf("%s: %v", what, err)
			}
			if err == nil && !bytes.Equal(again, body) {
				t.Errorf("%s: % x is encoded as % x", what, body, again)
			}
		}
		a, err := frames.ParseFileAnswer(body)
		same("answer", append(frames.AppendFileAnswer(nil, &a), a.Data...), err)
		c, err := frames.ParseChange(body)
		same("change", frames.AppendChange(nil, &c), err)
		u, err := frames.ParseUsage(body)
		same("usage", frames.AppendUsage(nil, u), err)
		r, err := frames.ParseRanges(body)
		same("ranges", frames.AppendRanges(nil, r), err)
		if st, failed := frames.ParseStat(body); failed == nil {
			got, failure := frames.ParseStat(frames.AppendStat(nil, &st))
			if failure != nil || got != st {
				t.Errorf("%+v is read as %+v, %v", st, got, failure)
			}
		}
		entries, err := frames.ParseFileEntries(body)
		var b []byte
		for i := range entries {
			b, _ = frames.AppendFileEntry(b, 0, &entries[i])
		}
		if err == nil && len(entries) > 0 {
			got, failure := frames.ParseFileEntries(b)
			if failure != nil || !reflect.DeepEqual(got, entries) {
				t.Errorf("%+v is read as %+v, %v", entries, got, failure)
			}
		}
	})
}

// TestRanges reads a file from its start, and at places of their own, of which only some are kept.
func TestRanges(t *testing.T) {
	var all []frames.Range
	for at := range uint64(10) {
		all = frames.AddRange(all, frames.Range{From: 100 * at, End: 100 * (at + 1)})
	}
	all = frames.AddRange(all, frames.Range{From: 1000, End: 1000})
	if want := []frames.Range{{End: 1000}}; !reflect.DeepEqual(all, want) {
		t.Errorf("the ranges are %v, want %v", all, want)
	}
	for at := range uint64(2 * frames.MostRanges) {
		all = frames.AddRange(all, frames.Range{From: 2000 + 2*at, End: 2001 + 2*at})
	}
	if got, err := frames.ParseRanges(frames.AppendRanges(nil, all)); err != nil || len(got) != frames.MostRanges || !reflect.DeepEqual(got, all) {
		t.Errorf("%d ranges, %v", len(got), err)
	}
	for _, bad := range [][]byte{
		make([]byte, 7), make([]byte, 16), frames.AppendRanges(nil, []frames.Range{{From: 2, End: 1}}),
		frames.AppendRanges(nil, append(all, frames.Range{End: 1})),
	} {
		if _, err := frames.ParseRanges(bad); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}
