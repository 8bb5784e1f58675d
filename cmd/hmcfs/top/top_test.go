package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport"
)

// stateAt returns the state of a mount that copies 1000 bytes per second, at a number of seconds
// after its start.
func stateAt(second int, started time.Time) sample {
	at := started.Add(time.Duration(second) * time.Second)
	n := uint64(1000 * second)
	return sample{
		at: at,
		status: adminapi.Status{
			MountPoint: "/m", Started: started,
			Devices: []adminapi.Device{{Name: "sim0", Model: "a", Used: 30, Total: 100}, {Name: "sim1", Model: "b\x1b[31m", Used: 99, Total: 100}},
			Paths: []transport.PathStats{
				{Path: "h2d", Device: "sim0", Bytes: n, Operations: uint64(second)},
				{Path: "d2h", Device: "sim0", Bytes: 2 * n, Operations: uint64(second)},
			},
		},
		activity: adminapi.Activity{
			Processes: []adminapi.Process{
				{PID: 1, Command: "reader", ReadBytes: n, Last: at},
				{PID: 1, Command: "reader", ReadBytes: 3 * n, Last: at, Session: true},
			},
			Slow: []adminapi.SlowOperation{{At: at.Add(-time.Minute), Name: "fsync", Seconds: 0.2}},
		},
	}
}

func TestCompare(t *testing.T) {
	started := time.Now()
	for _, c := range []struct {
		name          string
		before, after sample
		seconds, rate float64
	}{
		{"two samples", stateAt(10, started), stateAt(14, started), 4, 1000},
		{"the first sample", sample{}, stateAt(14, started), 0, 0},
		{"another daemon", stateAt(10, started.Add(-time.Hour)), stateAt(14, started), 0, 0},
	} {
		r := compare(c.before, c.after, &users{})
		if r.Seconds != c.seconds || r.Paths[0].Rate != c.rate || r.Paths[1].Rate != 2*c.rate || r.Devices[0].Rate != 3*c.rate || r.Devices[1].Rate != 0 {
			t.Errorf("%s: %+v", c.name, r)
		}
		p := r.Processes
		if len(p) != 2 || p[0].ReadRate != c.rate || p[1].ReadRate != 3*c.rate {
			t.Errorf("%s: processes %+v", c.name, p)
		}
	}
	if got := rates(2).of(100, 50); got != 25 {
		t.Errorf("a counter that began again: rate %v", got)
	}
}

// screen returns the lines of the view without styles.
func screen(m *model) []string {
	return strings.Split(ansi.Strip(m.View().Content), "\n")
}

// TestEverySize draws all screens at all sizes: each has as many lines as the terminal, none too
// wide, and none with a device's escape sequence.
func TestEverySize(t *testing.T) {
	started := time.Now()
	m := &model{interval: time.Second, users: &users{}}
	m.Update(sampled{sample: stateAt(1, started)})
	m.Update(sampled{sample: stateAt(2, started)})
	for _, key := range []string{"", "?", "1", "2", "3", "4", "5", "6", "0", "/"} {
		if key != "" {
			m.press(key)
		}
		for width := 0; width < 130; width += 1 + width/20 {
			for _, height := range []int{0, 1, 2, 3, 4, 5, 7, 24, 50} {
				m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				lines := screen(m)
				if len(lines) != max(1, height) {
					t.Fatalf("%d × %d, key %q: %d lines", width, height, key, len(lines))
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width || strings.Contains(line, "\x1b") {
						t.Fatalf("%d × %d, key %q: line %q", width, height, key, line)
					}
				}
			}
		}
	}
}

func TestShare(t *testing.T) {
	rows := func(n int) section { return section{rows: make([]row, n)} }
	all := []section{rows(3), rows(0), rows(10), rows(2)}
	for _, c := range []struct {
		lines int
		want  [4]int
	}{
		{1, [4]int{}}, {2, [4]int{1}}, {3, [4]int{2}}, {6, [4]int{1, 0, 1, 1}}, {8, [4]int{2, 0, 2, 1}}, {12, [4]int{3, 0, 4, 2}}, {99, [4]int{3, 0, 10, 2}},
	} {
		if got := [4]int(share(all, c.lines)); got != c.want {
			t.Errorf("%d lines: %v, want %v", c.lines, got, c.want)
		}
	}
}

func TestPauseAndFailure(t *testing.T) {
	started := time.Now()
	m := &model{interval: time.Second, users: &users{}, width: 80, height: 24}
	m.Update(sampled{sample: stateAt(1, started)})
	m.press("p")
	m.Update(sampled{sample: stateAt(2, started)})
	if m.report.Seconds != 0 {
		t.Errorf("a paused view has changed: %+v", m.report)
	}
	m.press("p")
	m.Update(sampled{err: errors.New("gone\x1b[2J")})
	if line := screen(m)[1]; !strings.Contains(line, "no answer, trying again: gone") || strings.Contains(line, "\x1b") {
		t.Errorf("the state is %q", line)
	}
	m.Update(sampled{sample: stateAt(5, started)})
	if m.report.Seconds != 4 || strings.Contains(screen(m)[1], "no answer") {
		t.Errorf("after the failure: %+v, %q", m.report, screen(m)[1])
	}
}

func TestFilter(t *testing.T) {
	m := &model{interval: time.Second, users: &users{}, width: 80, height: 24}
	m.Update(sampled{sample: stateAt(1, time.Now())})
	m.press("/")
	for _, r := range "SIM1é" {
		m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyBackspace})
	if text := strings.Join(screen(m), "\n"); !strings.Contains(text, "filter: SIM1_") || !strings.Contains(text, "sim1") || strings.Contains(text, "sim0") {
		t.Errorf("filtered:\n%s", text)
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyEscape})
	if m.filter != "" || m.typing {
		t.Errorf("the filter is still %q", m.filter)
	}
}

func TestFormats(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3 * time.Hour: "3h00m", 49 * time.Hour: "2d01h",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
	if got := perSecond(float64(3 * devices.MiB)); got != "3.0 MiB/s" {
		t.Errorf("a rate is shown as %q", got)
	}
}

// TestKeys presses keys as the terminal reports them, in a table with more rows than fit.
func TestKeys(t *testing.T) {
	m := &model{interval: time.Second, users: &users{}, width: 80, height: frameLines + 3}
	s := stateAt(1, time.Now())
	for pid := range 10 {
		s.activity.Processes = append(s.activity.Processes, adminapi.Process{PID: 100 + pid, Command: "one" + string(rune('a'+pid))})
	}
	m.Update(sampled{sample: s})
	press := func(code rune, text string) {
		m.Update(tea.KeyPressMsg{Code: code, Text: text})
		m.View() // which bounds the position
	}
	press('2', "2")
	rows := len(m.report.Processes) - 2
	for _, c := range []struct {
		code rune
		text string
		want int
	}{
		{tea.KeyUp, "", 0},
		{tea.KeyDown, "", 1},
		{'j', "j", 2},
		{'k', "k", 1},
		{tea.KeyPgDown, "", 4},
		{tea.KeyPgDown, "", 7},
		{tea.KeyPgDown, "", rows},
		{tea.KeyPgDown, "", rows},
		{tea.KeyPgUp, "", rows - 3},
		{tea.KeyTab, "", 0},
	} {
		if press(c.code, c.text); m.skip != c.want {
			t.Fatalf("key %q: row %d, want %d", c.code, m.skip, c.want)
		}
	}
	if m.only != 3 {
		t.Errorf("Tab went to table %d", m.only)
	}
	press(tea.KeySpace, " ")
	press('+', "+")
	if press('h', "h"); !m.paused || m.interval != 2*time.Second || !strings.Contains(strings.Join(screen(m), "\n"), "quit") {
		t.Errorf("paused %v, every %v", m.paused, m.interval)
	}
	if press(tea.KeyEscape, ""); m.only != 0 || m.help {
		t.Errorf("Esc shows table %d, help %v", m.only, m.help)
	}
	for range 20 {
		press('-', "-")
	}
	if m.interval != MinInterval {
		t.Errorf("every %v", m.interval)
	}
	if _, quit := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); quit == nil {
		t.Error("^C does not end it")
	}
}
