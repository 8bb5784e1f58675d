package kit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tree creates a tree like those of the kernel in a new directory, and returns it. files maps
// each path to its content, to which a newline is appended. A content that begins with "->"
// makes a symlink to another path of the tree.
func Tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		at := filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(at), 0o700)
		if target, is := strings.CutPrefix(content, "->"); err == nil && is {
			err = os.Symlink(filepath.Join(root, target), at)
		} else if err == nil {
			err = os.WriteFile(at, []byte(strings.TrimSuffix(content, "\n")+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}
