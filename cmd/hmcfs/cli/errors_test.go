package cli

import "testing"

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
