package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestLimitsOfNamesAndAttributes reaches each limit of the records through a mount: the error
// and the counter are those of the limit, and the counts are the same after a kill.
func TestLimitsOfNamesAndAttributes(t *testing.T) {
	kit.Check(t)
	const names, bytes = 20, 40_000
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Extra: []string{
		"--limit", fmt.Sprint("user-names=", names), "--limit", fmt.Sprint("user-xattr-bytes=", bytes),
		"--limit", "inode-xattrs=3", "--limit", "inode-xattr-bytes=30000",
	}})
	dir := openDir(t, m.Path("sim0"))
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("f", i)) }
	set := func(i int, name string, n int) error {
		return unix.Setxattr(file(i), "user."+name, kit.Bytes(uint64(i), 0, n), 0)
	}
	refused := func(limit string, want int) {
		t.Helper()
		text, err := m.Client().Metrics(t.Context())
		if line := fmt.Sprintf("hmcfs_limit_refusals_total{limit=%q} %d\n", limit, want); err != nil || !strings.Contains(text, line) {
			t.Errorf("the metrics don't say %q: %v", line, err)
		}
	}
	mnt.AsUser(t, userAlice(), func() {
		for i := range names {
			must(t, os.WriteFile(file(i), nil, 0o600))
		}
		wantErrno(t, unix.Mkdir(file(names), 0o700), unix.EDQUOT)
		must(t, set(0, "a", 20_000))
		wantErrno(t, set(0, "b", 20_000), unix.ENOSPC)
		must(t, set(0, "b", 10))
		must(t, set(0, "c", 10))
		wantErrno(t, set(0, "d", 10), unix.ENOSPC)
		must(t, set(1, "a", 19_000))
		wantErrno(t, set(2, "a", 5_000), unix.EDQUOT)
		must(t, set(2, "a", 500))
	})
	refused("user-names", 1)
	refused("inode-xattr-bytes", 1)
	refused("inode-xattrs", 1)
	refused("user-xattr-bytes", 1)
	m.Kill()
	m.Start()
	mnt.AsUser(t, userAlice(), func() {
		wantErrno(t, unix.Mkdir(file(names), 0o700), unix.EDQUOT)
		wantErrno(t, set(3, "a", 5_000), unix.EDQUOT)
		// Exactly one name is free again, and the bytes of the file's attributes.
		must(t, os.Remove(file(1)))
		must(t, set(3, "a", 19_000))
		must(t, unix.Mkdir(file(names), 0o700))
		wantErrno(t, unix.Mkdir(file(names+1), 0o700), unix.EDQUOT)
	})
}

// TestLimitsAreCounted compares the limits of docs/operations.md with the metrics: each has a
// name, a documented behaviour beyond it, its value in hmcfs_limit, and a counter.
func TestLimitsAreCounted(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	text, err := m.Client().Metrics(t.Context())
	must(t, err)
	served := series(text, "hmcfs_limit")
	counted := series(text, "hmcfs_limit_refusals_total")
	if names := slices.Sorted(maps.Keys(served)); !slices.Equal(names, slices.Sorted(maps.Keys(counted))) {
		t.Errorf("limits %q, counters %q", names, slices.Sorted(maps.Keys(counted)))
	}
	told := map[string]bool{}
	beyond := regexp.MustCompile("\\bE[A-Z]{3,}\\b|`dropped`")
	for _, row := range limitRows(t) {
		name := strings.Trim(row[0], "`")
		told[name] = true
		value, err := devices.ParseSize(row[2])
		if limit, ok := served[name]; err != nil || !ok || limit != float64(value) {
			t.Errorf("%q is %q in the table, %v in the metrics: %v", name, row[2], limit, err)
		}
		if !beyond.MatchString(row[4]) {
			t.Errorf("%q: what is beyond it is %q", name, row[4])
		}
	}
	for name := range served {
		if !told[name] {
			t.Errorf("%q is not in the table", name)
		}
	}
}

// limitRows returns the cells of each row of the table of limits in docs/operations.md.
func limitRows(t *testing.T) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("no table in %q", section)
	}
	return rows[2:] // without the column names and the separator line
}

// series returns the values of a metric by its only label.
func series(text, metric string) map[string]float64 {
	values := map[string]float64{}
	line := regexp.MustCompile(`(?m)^` + metric + `\{limit="([^"]+)"\} (\S+)$`)
	for _, found := range line.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(found[2], 64)
		if err == nil {
			values[found[1]] = value
		}
	}
	return values
}
