package hetero_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	return keys
}

func TestCheckKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys []string
		good bool
	}{
		"one":            {[]string{"k"}, true},
		"every sign":     {[]string{"-_!@#%^*()+=:;.azAZ09", "..."}, true},
		"the longest":    {[]string{strings.Repeat("k", hetero.MaxKeyLen)}, true},
		"the most":       {numbered(hetero.MaxKeys), true},
		"none":           {nil, false},
		"too many":       {numbered(hetero.MaxKeys + 1), false},
		"too long":       {[]string{strings.Repeat("k", hetero.MaxKeyLen+1)}, false},
		"empty":          {[]string{"k", ""}, false},
		"twice":          {[]string{"k", "l", "k"}, false},
		"this directory": {[]string{"."}, false},
		"the one above":  {[]string{".."}, false},
		"a slash":        {[]string{"a/b"}, false},
		"an ampersand":   {[]string{"##&%$#"}, false},
		"a tilde":        {[]string{"~"}, false},
		"a zero":         {[]string{"k\x00"}, false},
		"a line":         {[]string{"k\n"}, false},
		"not ASCII":      {[]string{"ä"}, false},
	} {
		if err := hetero.CheckKeys(c.keys); (err == nil) != c.good || err != nil && !errors.Is(err, hetero.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckKeysTellsWhich(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string][]string{
		`keys[1]`:                      {"k", "a/b"},
		`keys[2] repeats keys[0]`:      {"k", "l", "k"},
		`maximum is 10000 in one call`: numbered(hetero.MaxKeys + 1),
	} {
		if err := hetero.CheckKeys(keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestCheckLists(t *testing.T) {
	t.Parallel()
	list := func(change func(l *hetero.DeviceBlobList)) hetero.DeviceBlobList {
		l := hetero.DeviceBlobList{Device: "sim0", Blobs: []hetero.Blob{{Memory: 1, Size: 8}, {Memory: 2, Off: 4, Size: 1}}}
		change(&l)
		return l
	}
	good := list(func(*hetero.DeviceBlobList) {})
	for name, c := range map[string]struct {
		bad     hetero.DeviceBlobList
		partial bool
	}{
		"no device":        {bad: list(func(l *hetero.DeviceBlobList) { l.Device = "" })},
		"another device":   {bad: list(func(l *hetero.DeviceBlobList) { l.Device = "sim1" })},
		"no blobs":         {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs = nil })},
		"no memory":        {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs[1].Memory = 0 })},
		"no bytes":         {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs[1].Size = 0 })},
		"overflow":         {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs[1].Off = 1<<64 - 1 })},
		"too large":        {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs[0].Size = 1 << 63 })},
		"sum too large":    {bad: list(func(l *hetero.DeviceBlobList) { l.Blobs[0].Size, l.Blobs[1].Size = 1<<63-1, 1 })},
		"an offset":        {bad: list(func(l *hetero.DeviceBlobList) { l.SourceOffset = 1 })},
		"negative offset":  {bad: list(func(l *hetero.DeviceBlobList) { l.SourceOffset = -1 })},
		"negative in part": {bad: list(func(l *hetero.DeviceBlobList) { l.SourceOffset = -1 << 63 }), partial: true},
	} {
		lists := []hetero.DeviceBlobList{good, c.bad}
		err := hetero.CheckLists(numbered(2), lists, c.partial)
		if !errors.Is(err, hetero.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if !strings.Contains(err.Error(), "lists[1]") {
			t.Errorf("%s: the error does not say which list: %v", name, err)
		}
	}
	part := list(func(l *hetero.DeviceBlobList) { l.SourceOffset = 1<<63 - 1 })
	if err := hetero.CheckLists(numbered(2), []hetero.DeviceBlobList{part, good}, true); err != nil {
		t.Errorf("lists that can be: %v", err)
	}
	for _, n := range []int{0, 1, 3} {
		if err := hetero.CheckLists(numbered(2), slices.Repeat([]hetero.DeviceBlobList{good}, n), false); !errors.Is(err, hetero.ErrInvalid) {
			t.Errorf("%d lists of two keys: %v", n, err)
		}
	}
}

func TestListSize(t *testing.T) {
	t.Parallel()
	l := hetero.DeviceBlobList{Blobs: []hetero.Blob{{Size: 5}, {Size: 1 << 40}}}
	if l.Size() != 1<<40+5 {
		t.Errorf("%d bytes", l.Size())
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []hetero.SetOptions{
		{}, {TTL: time.Second}, {Existing: hetero.ExistingSkip}, {Existing: hetero.ExistingReplace}, {Existing: hetero.ExistingFail},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []hetero.SetOptions{{TTL: -1}, {TTL: time.Second + 1}, {Existing: "SKIP"}} {
		if err := o.Validate(); !errors.Is(err, hetero.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for timeout, good := range map[time.Duration]bool{0: true, 1: true, hetero.MaxTimeout: true, -1: false, hetero.MaxTimeout + 1: false} {
		for _, err := range []error{
			hetero.GetOptions{Timeout: timeout}.Validate(), hetero.SubscribeOptions{Timeout: timeout}.Validate(), hetero.CheckTimeout(timeout),
		} {
			if (err == nil) != good || err != nil && !errors.Is(err, hetero.ErrInvalid) {
				t.Errorf("a timeout of %v: %v", timeout, err)
			}
		}
	}
	for n, want := range map[int]time.Duration{1: 20 * time.Second, 2: time.Minute, hetero.MaxKeys: time.Minute} {
		var o hetero.SubscribeOptions
		if o.EnsureDefaults(n); o.Timeout != want {
			t.Errorf("%d keys are waited for %v, want %v", n, o.Timeout, want)
		}
	}
	o := hetero.SubscribeOptions{Timeout: 5}
	if o.EnsureDefaults(1); o.Timeout != 5 {
		t.Errorf("a timeout that was given became %v", o.Timeout)
	}
}

func TestCheckMemory(t *testing.T) {
	t.Parallel()
	local, shared, file := new(devices.Memory), new(share.Memory), new(os.File)
	for name, c := range map[string]struct {
		memory hetero.Memory
		good   bool
	}{
		"local":               {hetero.Memory{Device: "sim0", Local: local}, true},
		"shared":              {hetero.Memory{Device: "sim0", Share: shared, Files: []*os.File{file}}, true},
		"a file":              {hetero.Memory{File: file}, true},
		"a file on a device":  {hetero.Memory{Device: "sim0", File: file}, true},
		"nothing":             {hetero.Memory{Device: "sim0"}, false},
		"two":                 {hetero.Memory{Device: "sim0", Local: local, Share: shared}, false},
		"of no device":        {hetero.Memory{Local: local}, false},
		"shared, no device":   {hetero.Memory{Share: shared}, false},
		"idle descriptors":    {hetero.Memory{Device: "sim0", Local: local, Files: []*os.File{file}}, false},
		"a file, descriptors": {hetero.Memory{File: file, Files: []*os.File{file}}, false},
	} {
		if err := c.memory.Check(); (err == nil) != c.good || err != nil && !errors.Is(err, hetero.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCheckLists looks for lists that are accepted although they cannot denote any memory.
func FuzzCheckLists(f *testing.F) {
	f.Add("k", "sim0", uint64(1), uint64(0), uint64(8), int64(0), false)
	f.Add("k", "sim0", uint64(1), uint64(1<<63), uint64(1<<63), int64(7), true)
	f.Add("..", "", uint64(0), uint64(1<<64-1), uint64(1), int64(-1), true)
	f.Fuzz(func(t *testing.T, key, device string, memory, off, size uint64, offset int64, partial bool) {
		list := hetero.DeviceBlobList{
			Device: devices.Name(device), SourceOffset: offset,
			Blobs: []hetero.Blob{
				{Memory: hetero.MemoryID(memory), Off: devices.Offset(off), Size: devices.Size(size)},
				{Memory: 1, Size: devices.Size(size)},
			},
		}
		if err := hetero.CheckLists([]string{key}, []hetero.DeviceBlobList{list}, partial); err != nil {
			if !errors.Is(err, hetero.ErrInvalid) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		switch {
		case metadata.ValidKey(key) != nil || len(key) > hetero.MaxKeyLen || key == "." || key == "..":
			t.Errorf("the key %q is taken", key)
		case device == "" || memory == 0 || size == 0 || off+size < off || 2*size < size || 2*size > 1<<63-1:
			t.Errorf("the list is taken: %+v", list)
		case offset < 0 || offset > 0 && !partial:
			t.Errorf("the offset %d is taken, in part: %v", offset, partial)
		}
	})
}

// TestKeyWithSlash checks that the error of a key with a slash says what to write instead: calls
// of every interface check their keys in this place.
func TestKeyWithSlash(t *testing.T) {
	t.Parallel()
	const want = `invalid key "m/0/k": a key has no directories; write : instead of /, as in "m:0:k"`
	if err := hetero.CheckKeys([]string{"a", "m/0/k"}); !errors.Is(err, hetero.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestGenerateKey(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		key, err := hetero.GenerateKey("")
		if err != nil || hetero.CheckKey(key) != nil || len(key) != 36 || key[14] != '4' || seen[key] {
			t.Fatalf("drew %q, %v", key, err)
		}
		seen[key] = true
	}
	if key, err := hetero.GenerateKey("mine"); key != "mine" || err != nil {
		t.Errorf("a prefix becomes %q, %v", key, err)
	}
	if _, err := hetero.GenerateKey("a/b"); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("a prefix that is no key: %v", err)
	}
}
