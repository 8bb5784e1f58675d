package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestParsePair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		with pairing
		want keyPath
		err  string
	}{
		{text: "k", with: keysAlone, want: keyPath{key: "k"}},
		{text: "a=b", with: keysAlone, want: keyPath{key: "a=b"}},
		{text: "k", with: pathsIfAny, want: keyPath{key: "k"}},
		{text: "k=-", with: pathsIfAny, want: keyPath{"k", "-"}},
		{text: "a=b=-", with: pathsIfAny, want: keyPath{"a=b", "-"}},
		{text: "k=f", with: pathsAlways, want: keyPath{"k", "f"}},
		{text: "a=b=/m/f", with: pathsAlways, want: keyPath{"a=b", "/m/f"}},
		{text: "a=b==/m/f", with: pathsAlways, want: keyPath{"a=b=", "/m/f"}},
		{text: "k=/m/f=1", with: pathsAlways, want: keyPath{"k", "/m/f=1"}},
		{text: "k=./f=1", with: pathsAlways, want: keyPath{"k", "./f=1"}},
		{text: "k=d=1/f=2", with: pathsAlways, want: keyPath{"k=d", "1/f=2"}},
		{text: "-#:;(!@%^*)+=/m/f", with: pathsAlways, want: keyPath{"-#:;(!@%^*)+", "/m/f"}},
		{text: "k", with: pathsAlways, err: "no path"},
		{text: "/m/k=f", with: pathsAlways, err: "no path"},
		{text: "k=", with: pathsIfAny, err: "nothing after the ="},
	} {
		got, err := parsePair(c.text, c.with)
		if c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.text, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v, want %q", c.text, got, err, c.err)
		}
	}
}

func TestKeysFromStandardInput(t *testing.T) {
	t.Parallel()
	got, err := keyArgs([]string{"first", "-", "last"}, strings.NewReader("-\na=b\n#c\n"), keysAlone)
	want := []keyPath{{key: "first"}, {key: "-"}, {key: "a=b"}, {key: "#c"}, {key: "last"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = keyArgs([]string{"-"}, strings.NewReader("a=b=/m/x\nc=/m/y"), pathsAlways)
	if err != nil || !reflect.DeepEqual(got, []keyPath{{"a=b", "/m/x"}, {"c", "/m/y"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	var many strings.Builder
	for i := range hetero.MaxKeys {
		fmt.Fprintf(&many, "k%d\n", i)
	}
	most := many.String()
	if got, err = keyArgs([]string{"-"}, strings.NewReader(most), keysAlone); err != nil || len(got) != hetero.MaxKeys {
		t.Errorf("%d keys, %v", len(got), err)
	}
	for input, text := range map[string]string{
		"":                "no keys",
		"a\n\nb\n":        "line 2 of standard input is empty",
		"a\nb\na\n":       `keys[2] repeats keys[0]`,
		"a\nb/c\n":        `invalid key "b/c"`,
		most + "another1": "10001",
		most + "a\nb\nc":  "10001",
	} {
		_, err = keyArgs([]string{"-"}, strings.NewReader(input), keysAlone)
		if err == nil || !strings.Contains(err.Error(), text) || exitCode(err) != exitUsage {
			t.Errorf("%.20q: %v, want %q", input, err, text)
		}
	}
	if _, err = keyArgs([]string{"-", "-"}, strings.NewReader("a\n"), keysAlone); exitCode(err) != exitUsage {
		t.Errorf("standard input twice: %v", err)
	}
}

func TestFaultText(t *testing.T) {
	t.Parallel()
	gone := &fs.PathError{Op: "open", Path: "/m/x", Err: syscall.ENOENT}
	for _, c := range []struct {
		err        error
		code, text string
	}{
		{hetero.ErrNotFound, "not_found", "does not exist; hmcfs ls-keys lists the keys"},
		{gone, "not_found", "open /m/x: no such file or directory"},
		{hinted(gone, "look twice"), "not_found", "open /m/x: no such file or directory; look twice"},
		{fmt.Errorf("x: %w", hetero.ErrTimeout), "timeout", "x: not available in time; use --timeout to wait longer"},
		{errors.Join(gone, os.ErrClosed), "not_found", "open /m/x: no such file or directory; file already closed"},
		{&fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}, "no_memory", "write f: no space left on device; hmcfs status shows how much is free"},
		{&fs.PathError{Op: "read", Path: "f", Err: syscall.EIO}, "io", "read f: input/output error"},
		{
			&fs.PathError{Op: "lstat", Path: "/m/publish/k", Err: syscall.ECONNABORTED}, "disconnected",
			"lstat /m/publish/k: software caused connection abort; hmcfs status shows whether the daemon still runs",
		},
		{
			&fs.PathError{Op: "lstat", Path: "/m/publish/k", Err: syscall.ENOTCONN}, "disconnected",
			"lstat /m/publish/k: transport endpoint is not connected; hmcfs status shows whether the daemon still runs",
		},
		{syscall.EPERM, "not_authorized", "operation not permitted; run it as the owner of the file, or as root"},
	} {
		if got := statusOf(c.err).Name; got != c.code {
			t.Errorf("%v is told as %q, want %q", c.err, got, c.code)
		}
		if got := faultText(c.err); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
}

func TestSecondsFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"20": "20s", "20s": "20s", "1m30s": "1m30s", "0": "0s", "500ms": "500ms"} {
		var s seconds
		if err := s.Set(text); err != nil || s.Duration.String() != want || !s.given {
			t.Errorf("%s: %v, %v", text, s.Duration, err)
		}
	}
	for _, text := range []string{"", "soon", "-1", "-1s", "1.5", "99999999999"} {
		var s seconds
		if err := s.Set(text); err == nil || s.given {
			t.Errorf("%s: %v", text, s.Duration)
		}
	}
	var s seconds
	if d, err := s.orDefault(1); err != nil || d != hetero.OneKeyTimeout {
		t.Errorf("one key: %v, %v", d, err)
	}
	if d, err := s.orDefault(2); err != nil || d != hetero.ManyKeysTimeout {
		t.Errorf("two keys: %v, %v", d, err)
	}
	s = seconds{given: true}
	if d, err := s.orDefault(2); err != nil || d != 0 {
		t.Errorf("none: %v, %v", d, err)
	}
	s.Duration = hetero.MaxTimeout + 1
	if _, err := s.orDefault(1); exitCode(err) != exitUsage {
		t.Errorf("too long: %v", err)
	}
}

// TestStatIn distinguishes a key that does not exist from a mount that does not exist.
func TestStatIn(t *testing.T) {
	kit.Check(t)
	m := place.Mount{MountPoint: t.TempDir()}
	_, err := statIn(m, keysDir, "k", os.Stat)
	if errors.Is(err, fs.ErrNotExist) || !errors.Is(err, hetero.ErrDisconnected) {
		t.Errorf("no mount: %v", err)
	}
	if err = os.Mkdir(filepath.Join(m.MountPoint, keysDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err = statIn(m, keysDir, "k", os.Stat); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), keyFile(m, "k")) {
		t.Errorf("no key: %v", err)
	}
	if err = os.WriteFile(keyFile(m, "k"), kit.Bytes(1, 0, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := statIn(m, keysDir, "k", os.Stat); err != nil || info.Size() != 100 {
		t.Errorf("a key: %v, %v", info, err)
	}
}
