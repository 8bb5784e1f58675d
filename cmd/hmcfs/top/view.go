package top

import (
	"fmt"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// The lines of the view that are not tables: two above them and one below.
const frameLines = 3

// room is the number of lines for tables.
func (m *model) room() int { return max(1, m.height-frameLines) }

// View draws the screen.
func (m *model) View() tea.View {
	lines := append([]string{m.title(), m.state()}, m.body()...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	if len(lines) > m.height-1 {
		lines = lines[:max(0, m.height-1)]
	}
	lines = append(lines, m.keys())
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

func (m *model) title() string {
	text := "hmcfs top"
	if m.report.MountPoint != "" {
		text = m.report.headline()
	}
	return ansi.NewStyle().Bold().Styled(text)
}

// state is the line below the title.
func (m *model) state() string {
	if m.failure != nil {
		return alarm(wire.Printable("no answer, trying again: "+m.failure.Error(), unicode.ReplacementChar))
	}
	var parts []string
	if m.paused {
		parts = append(parts, ansi.NewStyle().Bold().Styled("PAUSED"))
	}
	switch {
	case m.typing:
		parts = append(parts, "filter: "+m.filter+"_")
	case m.filter != "":
		parts = append(parts, "filter: "+m.filter)
	}
	by := m.sort.String()
	if m.reverse {
		by += ", reversed"
	}
	parts = append(parts, fmt.Sprintf("every %v, by %s", m.interval, by))
	if m.report.Passthrough {
		parts = append(parts, "passthrough on, not counted")
	}
	return strings.Join(parts, "  |  ")
}

func (m *model) keys() string {
	text := "q quit  s sort  r reverse  / filter  p pause  1-6 one table  0 all  ? help"
	if m.typing {
		text = "Enter keeps the filter, Esc removes it"
	}
	return ansi.NewStyle().Faint().Styled(text)
}

func helpLines() []string {
	return []string{
		"", "q        quit", "s        sort by rate, by total, by name", "r        reverse the order",
		"/        show only lines that contain a text", "p, Space stop and continue", "1 to 6   show one table: devices, processes, paths,",
		"         sessions, nodes, slow operations", "Tab      show the next table", "0, Esc   show all tables, and all lines",
		"↑ ↓ PgUp PgDn  move in a table that is shown alone", "+ -      longer, shorter between two samples", "?        end this help", "",
		"Bytes of host files that the kernel serves itself (passthrough) are", "not counted. docs/operations.md describes the tables.",
	}
}

// body returns the tables.
func (m *model) body() []string {
	switch {
	case m.help:
		return helpLines()
	case m.report.MountPoint == "":
		return nil
	}
	now := m.report.At
	all := m.report.sections(now)
	for i := range all {
		all[i] = all[i].sorted(m.sort, m.reverse, m.filter)
	}
	if m.only > 0 {
		return m.alone(all[m.only-1])
	}
	var out []string
	for i, rows := range share(all, m.room()) {
		if rows > 0 {
			out = append(out, all[i].draw(m.width, 0, rows, i+1)...)
		}
	}
	return out
}

// alone draws one table, from the row on that the user has moved to.
func (m *model) alone(s section) []string {
	rows := max(1, m.room()-1)
	m.skip = max(0, min(m.skip, len(s.rows)-rows))
	if len(s.rows) == 0 {
		return []string{head(s.title), "none"}
	}
	return s.draw(m.width, m.skip, rows, 0)
}

// share divides the lines among the tables, and returns how many rows each shows: with a head for
// each that has rows, one row after another goes to each table in turn.
func share(all []section, lines int) []int {
	out := make([]int, len(all))
	for more := true; more; {
		more = false
		for i, s := range all {
			cost := 1
			if out[i] == 0 {
				cost = 2 // its head
			}
			if out[i] < len(s.rows) && cost <= lines {
				out[i]++
				lines -= cost
				more = true
			}
		}
	}
	return out
}

// draw returns the head and rows of a table. key is the one that shows the table alone; 0 if it is.
func (s section) draw(width, skip, rows, key int) []string {
	shown := s.rows[skip:min(len(s.rows), skip+rows)]
	lines := section{title: s.title, columns: s.columns, rows: shown}.lines(width)
	if hidden := len(s.rows) - len(shown); hidden > 0 {
		note := fmt.Sprintf(" (%d more)", hidden)
		if key > 0 {
			note = fmt.Sprintf(" (%d more: %d)", hidden, key)
		}
		if space := width - ansi.StringWidth(lines[0]); space >= len(note) {
			lines[0] += note
		}
	}
	lines[0] = head(lines[0] + strings.Repeat(" ", max(0, width-ansi.StringWidth(lines[0]))))
	for i, r := range shown {
		if r.alarm {
			lines[i+1] = alarm(lines[i+1])
		}
	}
	return lines
}

func head(text string) string { return ansi.NewStyle().Reverse(true).Styled(text) }

func alarm(text string) string { return ansi.NewStyle().ForegroundColor(ansi.Red).Styled(text) }
