package cli

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionNamesTheCommit(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, c := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"without git":       {nil, release},
		"in a checkout":     {[]debug.BuildSetting{commit}, release + "+01234567"},
		"in a changed one":  {[]debug.BuildSetting{commit, changed}, release + "+01234567.dirty"},
		"a short revision":  {[]debug.BuildSetting{{Key: "vcs.revision", Value: "1"}, changed}, release},
		"only it's changed": {[]debug.BuildSetting{changed}, release},
	} {
		if got := withCommit(c.settings); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The release is the newest one of the changelog.
func TestReleaseIsInTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## ")
	if newest, _, _ := strings.Cut(rest, " "); newest != release {
		t.Errorf("CHANGELOG.md begins with %q, the sources are %s", newest, release)
	}
}
