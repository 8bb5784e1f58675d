package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal returns the two ends of a new terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// TestColours runs commands with a terminal, and with a pipe instead.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		vars    map[string]string
		pipe    bool
		colours bool
	}{
		{colours: true},
		{vars: map[string]string{"NO_COLOR": "1"}},
		{vars: map[string]string{"TERM": "dumb"}},
		{vars: map[string]string{"NO_COLOR": "", "TERM": "xterm"}, colours: true},
		{pipe: true},
	} {
		var out, to *os.File
		if c.pipe {
			var err error
			if out, to, err = os.Pipe(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = errors.Join(out.Close(), to.Close()) })
		} else {
			out, to = terminal(t)
		}
		said := make(chan string, 1)
		go func() {
			buffer := make([]byte, 64<<10)
			n, _ := io.ReadAtLeast(out, buffer, 300) // an error is less than that
			said <- string(buffer[:n])
		}()
		for _, args := range [][]string{{"mout"}, {"devices"}, {"help"}} {
			Run(t.Context(), Env{Args: append([]string{"hmcfs"}, args...), Stdout: to, Stderr: to, Getenv: func(name string) string { return c.vars[name] }})
		}
		select {
		case text := <-said:
			if has := strings.Contains(text, "\x1b["); has != c.colours {
				t.Errorf("%+v: %q", c, text)
			}
			if c.colours && (!strings.Contains(text, red+"hmcfs:"+plain+" unknown command") || !strings.Contains(text, bold+"FAMILY"+plain)) {
				t.Errorf("%+v: not painted: %q", c, text)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing was printed")
		}
	}
}

// TestTable checks the columns of a table, whose cells may have letters of several bytes.
func TestTable(t *testing.T) {
	var text strings.Builder
	table := newTable(&text, "\nA", "STATE", "END")
	table.row("äö", "dead", "")
	table.row("x", "ok", "y")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "\nA   STATE  END\näö  dead   -\nx   ok     y\n"; text.String() != want {
		t.Errorf("%q", text.String())
	}
	evil := newTable(&text, "NAME")
	evil.row("a\x1b[31mb\nc")
	text.Reset()
	if err := evil.Flush(); err != nil || text.String() != "NAME\na\ufffd[31mb\ufffdc\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	none := newTable(&text, "\nNONE")
	if before := text.Len(); none.Flush() != nil || text.Len() != before {
		t.Errorf("a second table without rows: %q", text.String()[before:])
	}
}
