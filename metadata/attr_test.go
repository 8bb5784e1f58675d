package metadata_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func TestXattrLimits(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	ino := f.touch(f.sim0, "file")
	long := strings.Repeat("n", metadata.MaxName)
	big := bytes.Repeat([]byte{0, 1, 254}, metadata.MaxXattr/3+1)[:metadata.MaxXattr]
	f.ok(f.SetXattr(ctx, ino, long, big, 0))
	f.ok(f.SetXattr(ctx, ino, "empty", nil, metadata.XattrCreate))
	fails(t, "long name", f.SetXattr(ctx, ino, long+"n", nil, 0), metadata.ErrRange)
	fails(t, "no name", f.SetXattr(ctx, ino, "", nil, 0), metadata.ErrRange)
	fails(t, "big value", f.SetXattr(ctx, ino, "big", append(big, 0), 0), metadata.ErrTooLarge)
	fails(t, "flags", f.SetXattr(ctx, ino, "x", nil, 3), metadata.ErrInvalid)
	fails(t, "no inode", f.SetXattr(ctx, 999_999, "x", nil, 0), metadata.ErrNotExist)
	fails(t, "remove", f.RemoveXattr(ctx, ino, "x"), metadata.ErrNoXattr)
	got, err := f.GetXattr(ctx, ino, long)
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	got[0] = 99 // the slice is the caller's
	if again, _ := f.GetXattr(ctx, ino, long); !bytes.Equal(again, big) {
		t.Error("a caller's change reaches the store")
	}
	if got, err = f.GetXattr(ctx, ino, "empty"); err != nil || len(got) != 0 {
		t.Errorf("the empty value is %q, %v", got, err)
	}
	_, err = f.GetXattr(ctx, ino, "absent")
	fails(t, "absent", err, metadata.ErrNoXattr)
	_, err = f.GetXattr(ctx, 999_999, "absent")
	fails(t, "no inode", err, metadata.ErrNotExist)
	if names, err := f.ListXattr(ctx, ino); err != nil || !slices.Equal(names, []string{"empty", long}) {
		t.Errorf("ListXattr = %v, %v", names, err)
	}
}

func TestKeys(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	a, b := f.touch(f.sim0, "a"), f.touch(f.sim1, "b")
	all := "abcxyzABCXYZ0123456789-_!@#%^*()+=:;."
	f.ok(f.BindKey(ctx, a, all))
	fails(t, "a key that is taken", f.BindKey(ctx, b, all), metadata.ErrExist)
	f.ok(f.BindKey(ctx, a, all)) // its own
	for c := range 256 {
		if key := string([]byte{'k', byte(c)}); !strings.ContainsRune(
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_!@#%^*()+=:;.", rune(c)) {
			fails(t, "key "+key, f.BindKey(ctx, b, key), metadata.ErrInvalidKey)
		} else {
			f.ok(f.BindKey(ctx, b, key))
		}
	}
	fails(t, "long key", f.BindKey(ctx, b, strings.Repeat("k", 256)), metadata.ErrInvalidKey)
	f.ok(f.BindKey(ctx, b, strings.Repeat("k", 255)))
	fails(t, "key of nothing", f.BindKey(ctx, 999_999, "x"), metadata.ErrNotExist)
	keys, err := f.Keys(ctx, "", 0)
	if err != nil || len(keys) != 2 || keys[0] != (metadata.KeyEntry{Key: all, Ino: a}) || keys[1].Ino != b {
		t.Errorf("Keys = %v, %v", keys, err)
	}
	f.ok(f.BindKey(ctx, b, ""))
	f.ok(f.BindKey(ctx, b, "now free"[:3]))
	f.must(f.Unlink(ctx, f.sim0, "a"))
	f.ok(f.BindKey(ctx, b, all))
	if in := f.must(f.Get(ctx, b)); in.Key != all {
		t.Errorf("the inode carries %q", in.Key)
	}
}

func TestDevices(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	_, err := f.DeviceEpoch(ctx, "none")
	fails(t, "DeviceEpoch", err, metadata.ErrNotExist)
	fails(t, "SetDeviceEpoch", f.SetDeviceEpoch(ctx, "none", 1), metadata.ErrNotExist)
	f.ok(f.SetDeviceEpoch(ctx, "sim1", 1<<64-1))
	if e, err := f.DeviceEpoch(ctx, "sim1"); e != 1<<64-1 || err != nil {
		t.Errorf("the epoch is %d, %v", e, err)
	}
	want := []metadata.DeviceRecord{
		{Name: "sim0", Ino: f.sim0}, {Name: "sim1", Ino: f.sim1, Epoch: 1<<64 - 1},
	}
	if got, err := f.Devices(ctx); err != nil || !slices.Equal(got, want) {
		t.Errorf("Devices = %v, %v, want %v", got, err, want)
	}
}

// TestSaveContentDelta checks that mappings that are stored already are not written again.
func TestSaveContentDelta(t *testing.T) {
	base := &countKV{KV: newFixture(t).kv}
	s, err := metadata.Open(t.Context(), base, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := s.EnsureDevice(t.Context(), "sim0", 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Create(t.Context(), dev.Ino, "file", benchFile())
	if err != nil {
		t.Fatal(err)
	}
	maps := bigMappings(100)
	steps := []struct {
		name   string
		change func()
		writes int // besides the inode
	}{
		{"first", func() {}, 100},
		{"again", func() {}, 0},
		{"one changed", func() { maps[50].Written = 3 }, 1},
		{"one gone, one more", func() {
			maps = append(maps[:7], maps[8:]...)
			maps = append(maps, metadata.Mapping{FileOff: 1 << 50, Len: 1})
		}, 2},
		{"all but the last gone", func() { maps = maps[99:] }, 99},
		{"only one, again", func() {}, 0},
		{"none", func() { maps = nil }, 1},
	}
	for _, step := range steps {
		step.change()
		base.writes = 0
		if _, err := s.SaveContent(t.Context(), in.Ino, nil, maps); err != nil {
			t.Fatal(err)
		}
		if base.writes != step.writes+1 {
			t.Errorf("%s: %d writes, want %d", step.name, base.writes, step.writes+1)
		}
		if got, err := s.Mappings(t.Context(), in.Ino); err != nil || !slices.Equal(got, maps) {
			t.Errorf("%s: mappings are %v, %v", step.name, got, err)
		}
	}
}

func TestSaveContentRefuses(t *testing.T) {
	f := newFixture(t)
	ino := f.touch(f.sim0, "file")
	f.must(f.SaveContent(t.Context(), ino, nil, bigMappings(3)))
	bad := [][]metadata.Mapping{
		{{FileOff: 5, Len: 0}}, {{FileOff: 1<<64 - 2, Len: 3}}, {{Len: 10}, {FileOff: 9, Len: 1}},
	}
	for _, maps := range bad {
		_, err := f.SaveContent(t.Context(), ino, nil, maps)
		fails(t, "SaveContent", err, metadata.ErrInvalid)
	}
	if got, err := f.Mappings(t.Context(), ino); err != nil || !slices.Equal(got, bigMappings(3)) {
		t.Errorf("refused mappings were saved: %v, %v", got, err)
	}
}
