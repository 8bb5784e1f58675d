package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/tests/testfiles"
)

// git runs git and returns its output.
func git(ctx context.Context, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// baseOf returns the commit that the files are compared with.
func baseOf(ctx context.Context) (string, error) {
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	for _, trunk := range []string{"main", "origin/main"} {
		if fork, failure := git(ctx, "merge-base", "HEAD", trunk); failure == nil && fork != head {
			return fork, nil
		}
	}
	base, err := git(ctx, "rev-parse", "HEAD~1")
	if err != nil {
		if shallow, failure := git(ctx, "rev-parse", "--is-shallow-repository"); failure == nil && shallow == "true" {
			return head, nil // a clone without history has nothing to compare with
		}
	}
	return base, err
}

// changedLines returns the changed lines of each test file, by its path relative to the top
// of the repository, which is the working directory.
func changedLines(ctx context.Context, base string) (map[string][]testfiles.Lines, error) {
	diff, err := git(ctx, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", base, "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	changed, err := parseDiff(diff)
	if err != nil {
		return nil, err
	}
	added, err := git(ctx, "ls-files", "--others", "--exclude-standard", "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(added) {
		changed[name] = []testfiles.Lines{{First: 1, Last: 1 << 30}}
	}
	return changed, nil
}

// hunk matches the header of a hunk, with the lines of the new file.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// parseDiff returns the changed lines of each file in a diff without context.
func parseDiff(diff string) (map[string][]testfiles.Lines, error) {
	changed := make(map[string][]testfiles.Lines)
	file := ""
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "diff --git ") {
			file = ""
		}
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok && file == "" {
			file = name
		}
		at := hunk.FindStringSubmatch(line)
		if at == nil || file == "" {
			continue // content, or a deleted file
		}
		first, err := strconv.Atoi(at[1])
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		n := 1
		if at[2] != "" {
			if n, err = strconv.Atoi(at[2]); err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
		}
		// A hunk that only deletes lines touches the two lines around them.
		l := testfiles.Lines{First: first, Last: first + n - 1}
		if n == 0 {
			l.Last = first + 1
		}
		changed[file] = append(changed[file], l)
	}
	return changed, nil
}

// testsOf returns the tests touched by the changes, by the directory of their package.
func testsOf(changed map[string][]testfiles.Lines) (map[string][]string, error) {
	byDir := make(map[string][]string)
	for file := range changed {
		dir := path.Dir(file)
		byDir[dir] = append(byDir[dir], path.Base(file))
	}
	out := make(map[string][]string)
	for dir, files := range byDir {
		p, err := testfiles.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := make(map[string]bool)
		for _, file := range files {
			for _, test := range p.Touched(file, changed[path.Join(dir, file)]) {
				found[test] = true
			}
		}
		if len(found) > 0 {
			out[dir] = slices.Sorted(maps.Keys(found))
		}
	}
	return out, nil
}
