package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// section is one table of the view.
type section struct {
	title   string
	columns []column
	rows    []row
}

type column struct {
	head string
	// right aligns numbers, and flexible columns are shortened when the line is too long.
	right, flexible bool
}

// row is a line of a table with what it is sorted by.
type row struct {
	cells       []string
	rate, total float64
	name        string
	// alarm marks a line that somebody should look at.
	alarm bool
}

// order names a value that rows are sorted by.
type order int

const (
	byRate order = iota
	byTotal
	byName
	orders
)

// String returns the order's name on the screen.
func (o order) String() string { return [orders]string{"rate", "total", "name"}[o] }

// sections returns the tables of a report, in the order of their keys.
func (r Report) sections(now time.Time) []section {
	return []section{r.deviceTable(), r.processTable(), r.pathTable(), r.sessionTable(now), r.nodeTable(), r.slowTable(now)}
}

const barWidth = 10

func (r Report) deviceTable() section {
	s := section{title: "devices", columns: []column{
		{head: "DEVICE"}, {head: "MODEL", flexible: true}, {head: "USE"}, {head: "USED", right: true}, {head: "TOTAL", right: true}, {head: "RATE", right: true},
	}}
	for _, d := range r.Devices {
		share := 0.0
		if d.Total > 0 {
			share = float64(d.Used) / float64(d.Total)
		}
		full := min(barWidth, int(share*barWidth+0.5))
		bar := fmt.Sprintf("%s%s %3.0f%%", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), 100*share)
		s.rows = append(s.rows, row{
			cells: []string{string(d.Name), d.Model, bar, d.Used.String(), d.Total.String(), perSecond(d.Rate)},
			rate:  d.Rate, total: float64(d.Used), name: string(d.Name), alarm: share >= 0.95,
		})
	}
	return s
}

func (r Report) processTable() section {
	s := section{title: "processes", columns: []column{
		{head: "PID", right: true},
		{head: "USER"},
		{head: "COMMAND", flexible: true},
		{head: "BY"},
		{head: "READ", right: true},
		{head: "WRITE", right: true},
		{head: "READ/s", right: true},
		{head: "WRITE/s", right: true},
	}}
	for _, p := range r.Processes {
		by := "mount"
		if p.Session {
			by = "session"
		}
		command := cmp.Or(p.Command, "-")
		if p.Ended {
			command += " (ended)"
		}
		s.rows = append(s.rows, row{
			cells: []string{
				fmt.Sprint(p.PID), p.User, command, by,
				devices.Size(p.ReadBytes).String(), devices.Size(p.WrittenBytes).String(), perSecond(p.ReadRate), perSecond(p.WriteRate),
			},
			rate: p.ReadRate + p.WriteRate, total: float64(p.ReadBytes + p.WrittenBytes), name: p.Command,
		})
	}
	return s
}

func (r Report) pathTable() section {
	s := section{title: "paths", columns: []column{
		{head: "PATH"},
		{head: "DEVICE", flexible: true},
		{head: "BYTES", right: true},
		{head: "COPIES", right: true},
		{head: "ERRORS", right: true},
		{head: "COPIES/s", right: true},
		{head: "RATE", right: true},
	}}
	for _, p := range r.Paths {
		s.rows = append(s.rows, row{
			cells: []string{
				p.Path, p.Device, devices.Size(p.Bytes).String(), fmt.Sprint(p.Operations), fmt.Sprint(p.Errors),
				count(p.OperationRate), perSecond(p.Rate),
			},
			rate: p.Rate, total: float64(p.Bytes), name: p.Path + p.Device,
		})
	}
	return s
}

func (r Report) sessionTable(now time.Time) section {
	s := section{title: "sessions", columns: []column{{head: "PID", right: true}, {head: "UID", right: true}, {head: "COMMAND", flexible: true}, {head: "SINCE", right: true}}}
	for _, one := range r.Sessions {
		age := now.Sub(one.Begun)
		s.rows = append(s.rows, row{
			cells: []string{fmt.Sprint(one.PID), fmt.Sprint(one.UID), cmp.Or(one.Command, "-"), ago(age)},
			rate:  -age.Seconds(), total: age.Seconds(), name: one.Command,
		})
	}
	return s
}

func (r Report) nodeTable() section {
	s := section{title: "nodes", columns: []column{{head: "NODE"}, {head: "STATE", flexible: true}, {head: "BY"}}}
	for _, n := range r.Nodes {
		state, rank := "idle", 1.0
		switch {
		case n.Connected:
			state, rank = "connected", 2
		case n.Problem != "":
			state, rank = "unreachable: "+n.Problem, 3
		}
		s.rows = append(s.rows, row{cells: []string{n.Name, state, cmp.Or(n.Transport, "-")}, rate: rank, total: rank, name: n.Name, alarm: rank == 3})
	}
	return s
}

func (r Report) slowTable(now time.Time) section {
	s := section{title: "slow operations", columns: []column{
		{head: "OPERATION", flexible: true}, {head: "BY"}, {head: "PID", right: true}, {head: "TOOK", right: true}, {head: "AGO", right: true},
	}}
	for _, one := range r.Slow {
		by, pid := "mount", "-"
		if one.Session {
			by, pid = "session", fmt.Sprint(one.PID)
		}
		took := time.Duration(one.Seconds * float64(time.Second)).Round(time.Millisecond)
		s.rows = append(s.rows, row{
			cells: []string{one.Name, by, pid, took.String(), ago(now.Sub(one.At))},
			rate:  -now.Sub(one.At).Seconds(), total: one.Seconds, name: one.Name,
		})
	}
	return s
}

// sorted sorts the rows, and drops those without the filter's text in a cell.
func (s section) sorted(by order, reverse bool, filter string) section {
	s.rows = slices.DeleteFunc(slices.Clone(s.rows), func(r row) bool { return !r.matches(filter) })
	slices.SortStableFunc(s.rows, func(a, b row) int {
		c := cmp.Compare(a.name, b.name)
		switch by {
		case byRate:
			c = cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(b.total, a.total), c)
		case byTotal:
			c = cmp.Or(cmp.Compare(b.total, a.total), c)
		default:
		}
		if reverse {
			c = -c
		}
		return c
	})
	return s
}

func (r row) matches(filter string) bool {
	return filter == "" || slices.ContainsFunc(r.cells, func(cell string) bool {
		return strings.Contains(strings.ToLower(cell), strings.ToLower(filter))
	})
}

// minFlexible is the width to which a flexible column is shortened at most.
const minFlexible = 6

// lines returns the head and the rows as lines of at most width cells; a width of 0 has no limit.
func (s section) lines(width int) []string {
	texts := make([][]string, 0, len(s.rows)+1)
	head := make([]string, len(s.columns))
	for i, c := range s.columns {
		head[i] = c.head
	}
	texts = append(texts, head)
	for _, r := range s.rows {
		cells := make([]string, len(r.cells))
		for i, c := range r.cells {
			cells[i] = wire.Printable(c, unicode.ReplacementChar)
		}
		texts = append(texts, cells)
	}
	widths, total := make([]int, len(s.columns)), 2*(len(s.columns)-1)
	for i := range s.columns {
		for _, cells := range texts {
			widths[i] = max(widths[i], ansi.StringWidth(cells[i]))
		}
		total += widths[i]
	}
	for i, c := range s.columns {
		if over := total - width; width > 0 && over > 0 && c.flexible {
			widths[i] = max(min(widths[i], minFlexible), widths[i]-over)
		}
	}
	out := make([]string, len(texts))
	for n, cells := range texts {
		padded := make([]string, len(cells))
		for i, cell := range cells {
			cell = ansi.Truncate(cell, widths[i], "…")
			space := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
			if s.columns[i].right {
				padded[i] = space + cell
			} else {
				padded[i] = cell + space
			}
		}
		out[n] = strings.TrimRight(strings.Join(padded, "  "), " ")
		if width > 0 {
			out[n] = ansi.Truncate(out[n], width, "…")
		}
	}
	return out
}

// perSecond formats bytes per second.
func perSecond(rate float64) string {
	if rate < 1 {
		return "-"
	}
	return devices.Size(rate).String() + "/s"
}

// count formats operations per second.
func count(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", rate)
}

// ago formats a time span in one or two units.
func ago(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
