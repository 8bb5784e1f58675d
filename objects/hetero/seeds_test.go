package hetero

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sentinels returns the names of the sentinels in Go, in the order of Statuses.
func sentinels() []string {
	return []string{
		"ErrTimeout", "ErrInterrupted", "ErrShape", "ErrInconsistent", "ErrInvalid", "ErrOwnerGone",
		"ErrWithdrawn", "ErrLost", "ErrNotFound", "ErrExist", "ErrNoMemory", "ErrNotAuthorized", "ErrNotOwner",
		"ErrReadOnly", "ErrBusy", "ErrUnsupported", "ErrClosed", "ErrDisconnected", "ErrIO",
	}
}

// errnoName returns the name that the documents use.
func errnoName(e syscall.Errno) string {
	if e == syscall.EOPNOTSUPP {
		return "EOPNOTSUPP" // one number, two names
	}
	return unix.ErrnoName(e)
}

// TestStatusTable compares the table of docs/seeds.md with Statuses.
func TestStatusTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/seeds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "| status | sentinel | word | errno |\n| --- | --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/seeds.md has no table of statuses")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	names, rows := sentinels(), Statuses()
	if len(names) != len(rows) {
		t.Fatalf("%d statuses, %d names here", len(rows), len(names))
	}
	want := make([]string, len(rows))
	for i, s := range rows {
		seeds := make([]string, len(s.Seed))
		for k, name := range s.Seed {
			seeds[k] = "`" + name + "`"
		}
		want[i] = fmt.Sprintf("| %s | `%s` | `%s` | %s |",
			strings.Join(seeds, ", "), names[i], s.Name, errnoName(s.Errno))
	}
	if got := strings.Split(table, "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("docs/seeds.md has\n%s\nand should have\n%s", table, strings.Join(want, "\n"))
	}
}

// TestStatusesAreTold checks that every sentinel maps to its own row, and anything else to that
// of ErrIO.
func TestStatusesAreTold(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for _, s := range Statuses() {
		if got := StatusOf(fmt.Errorf("key: %w", s.Err)); got.Name != s.Name {
			t.Errorf("%v is told as %q, want %q", s.Err, got.Name, s.Name)
		}
		if words[s.Name] {
			t.Errorf("%q stands for two", s.Name)
		}
		words[s.Name] = true
	}
	if got := StatusOf(os.ErrClosed); got.Name != "io" {
		t.Errorf("an error of nobody is told as %q", got.Name)
	}
}
