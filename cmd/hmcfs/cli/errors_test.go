package cli

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The names in errors and reports may be other users'.
func TestNamesSendNothingToTheTerminal(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	printError(&text, errors.Join(&fs.PathError{Op: "open", Path: "x\x1b]0;y\a", Err: unix.ENOENT}, unix.EIO))
	field(&text, "file", "\r\x1b[2K")
	if want := "hmcfs: open x\ufffd]0;y\ufffd: no such file or directory\nhmcfs: input/output error\nfile:          \ufffd\ufffd[2K\n"; text.String() != want {
		t.Errorf("%q", text.String())
	}
}

func TestReadable(t *testing.T) {
	for text, want := range map[string]string{
		"x: it has none; name a file: attributes of inode 7: metadata: does not exist": "x: it has none; name a file: attributes of inode 7",
		"x: it has none; name a file: objects: invalid argument":                       "x: it has none; name a file",
		"bind x: objects: memory is shared with another process":                       "bind x: memory is shared with another process",
		"sim0: out of memory: 1 asked; remove files":                                   "sim0: out of memory: 1 asked; remove files",
		"metadata: no such key":                                                        "metadata: no such key",
	} {
		if got := readable(text); got != want {
			t.Errorf("readable(%q) = %q, want %q", text, got, want)
		}
	}
}
