package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// terminal is a program in a terminal that tmux draws.
type terminal struct {
	t      *testing.T
	socket string
}

// newTerminal runs hmcfs in a terminal of 80 × 24. The terminal stays when the program ends.
func newTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	kit.Require(t, "tool:tmux")
	dir := mnt.TempDir(t)
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, filepath.Join(dir, "hmcfs")))
	term := &terminal{t, filepath.Join(dir, "tmux")}
	quoted := filepath.Join(dir, "hmcfs")
	for _, arg := range args {
		quoted += " '" + arg + "'"
	}
	term.tmux("new-session", "-d", "-x", "80", "-y", "24", quoted+"; echo ended with $?; cat")
	t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", term.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
}

// shows waits until the screen has each text, and lacks those that begin with a "!", and returns its
// lines.
func (term *terminal) shows(texts ...string) (lines []string) {
	term.t.Helper()
	kit.Eventually(term.t, patience, func() error {
		screen := term.tmux("capture-pane", "-p")
		for _, text := range texts {
			absent, unwanted := strings.CutPrefix(text, "!")
			if !unwanted && !strings.Contains(screen, text) || unwanted && strings.Contains(screen, absent) {
				return fmt.Errorf("want %q in\n%s", text, screen)
			}
		}
		lines = strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
		return nil
	})
	return lines
}

// top drives hmcfs top in a terminal.
func (w *watched) top(t *testing.T) {
	s := w.session(t)
	w.move(t, s, 100)
	term := newTerminal(t, "top", "--interval", "200ms", w.Dir)
	lines := term.shows(w.Dir, "DEVICE", "sim0", "64.0 MiB", "COMMAND", "READ/s", "session", "PATH", "d2h", "SINCE", "NODE", "connected", "q quit")
	if !strings.Contains(lines[23], "? help") || !strings.HasPrefix(lines[2], "DEVICE") {
		t.Errorf("the help is not on the last line, or the tables not on the third:\n%s", strings.Join(lines, "\n"))
	}
	term.press("1")
	term.shows("DEVICE", "!PATH")
	term.press("3")
	term.shows("COPIES/s", "!MODEL")
	term.press("0", "s", "r")
	term.shows("by total, reversed")
	term.press("r", "/", "sim1")
	term.shows("filter: sim1_", "Enter keeps", "sim1", "!sim0", "!pinned")
	term.press("Enter", "p")
	term.shows("PAUSED", "q quit", "filter: sim1")
	term.press("p", "Escape") // with a key right behind it, it would be Alt
	term.shows("!filter:", "sim0")
	term.press("?")
	term.shows("show only lines that contain a text", "!PAUSED")
	term.press("?")
	term.shows("!show only lines", "sim0")
	term.tmux("resize-window", "-x", "60", "-y", "12")
	lines = term.shows("DEVICE", "sim0", "!? help")
	for _, line := range lines {
		if n := len([]rune(line)); n > 60 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	term.tmux("resize-window", "-x", "10", "-y", "2")
	term.shows("q quit")
	term.tmux("resize-window", "-x", "120", "-y", "40")
	term.shows("DEVICE", "session", "NODE", "? help")
	term.press("C-c")
	term.shows("ended with 0", "!DEVICE")
}

// topWithout ends the daemon under top, and starts another one.
func (w *watched) topWithout(t *testing.T) {
	term := newTerminal(t, "top", "--interval", "200ms", w.Dir)
	term.shows("sim0")
	w.Kill()
	term.shows("no answer, trying again", "sim0")
	w.Start()
	w.told(t)
	term.shows("!no answer", "sim0")
	term.press("q")
	term.shows("ended with 0", "!DEVICE")
}

// topOnce checks what scripts get.
func (w *watched) topOnce(t *testing.T) {
	w.move(t, w.session(t), 200)
	text, err := w.Run("top", "--once", "--interval", "100ms", w.Dir)
	must(t, err)
	for _, want := range []string{w.Dir, "\nDEVICE ", "\nsim1 ", "\nsessions\n", "\nh2d ", "rates over "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("the text has escapes: %q", text)
	}
	text, err = w.Run("top", "--once", "--json", "--interval", "100ms", w.Dir)
	must(t, err)
	var got struct {
		Devices   []struct{ Name string }
		Processes []struct {
			PID       int
			Session   bool
			ReadBytes uint64 `json:"read_bytes"`
		}
		Nodes []struct{ Name string }
	}
	must(t, json.Unmarshal([]byte(text), &got))
	if len(got.Devices) != 3 || len(got.Processes) < 2 || len(got.Nodes) != 1 || got.Nodes[0].Name != "b" {
		t.Errorf("JSON %+v", got)
	}
	for _, c := range []struct{ args, want string }{
		{"top", "not a terminal; use --once"},
		{"top --json", "--json needs --once"},
		{"top --once --interval 1ms", "--interval 1ms is not between"},
		{"top --once /", "not on an hmcfs mount"},
		{"top a b", "takes one MOUNTPOINT"},
	} {
		if _, err := w.Run(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("hmcfs %s: %v, want %q", c.args, err, c.want)
		}
	}
}
