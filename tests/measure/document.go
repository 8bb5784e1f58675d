package measure

import (
	"fmt"
	"os"
	"strings"
)

// SectionEnd is the line of a document at which a measured section ends.
const SectionEnd = "<!-- end of what was measured -->\n"

// ReplaceSection replaces the measured section of a document that begins with a line.
func ReplaceSection(path, begin, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, SectionEnd)
	if !found || !ended {
		return fmt.Errorf("%s has no measured part %q", path, strings.TrimSpace(begin))
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+SectionEnd+after), 0o644)
}
