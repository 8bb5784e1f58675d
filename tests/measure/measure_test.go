package measure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplaceSection(t *testing.T) {
	const begin = "<!-- measured -->\n"
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("nothing here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceSection(file, begin, "new"); err == nil || !strings.Contains(err.Error(), "no measured part") {
		t.Errorf("ReplaceSection = %v", err)
	}
	if err := ReplaceSection(file+"x", begin, "new"); err == nil {
		t.Error("a document that is missing is replaced")
	}
}
