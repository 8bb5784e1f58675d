package top

import (
	"context"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// Options configure the full-screen view.
type Options struct {
	// Interval is the time between two samples.
	Interval time.Duration
	// In and Out are the terminal.
	In  io.Reader
	Out io.Writer
}

// answerLimit bounds the wait for one sample.
const answerLimit = 10 * time.Second

// Run shows what a mount does until the user quits or the context ends. A daemon that goes away is
// waited for.
func Run(ctx context.Context, from Source, o Options) error {
	m := &model{interval: o.Interval, users: &users{}, take: func() tea.Msg {
		within, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		s, err := take(within, from)
		return sampled{s, err}
	}}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// sampled is the message that a sample was taken, or not; due is the one that it is time for one.
type (
	sampled struct {
		sample sample
		err    error
	}
	due struct{}
)

// model is the state of the view. Only the loop of Bubble Tea uses it.
type model struct {
	interval time.Duration
	users    *users
	take     tea.Cmd

	// last is the last sample, and report compares it with the one before. failure is the reason why
	// there was none since; nil if there was.
	last    sample
	report  Report
	failure error

	width, height int
	sort          order
	reverse       bool
	// paused leaves the report as it is.
	paused bool
	// filter selects rows; typing is set while it is entered.
	filter string
	typing bool
	// only is the number of the table that is shown alone; 0 shows all. skip is the number of its
	// rows above the screen.
	only, skip int
	help       bool
}

// Init takes the first sample.
func (m *model) Init() tea.Cmd { return m.take }

// Update handles a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case sampled:
		wait := m.interval
		if m.report.Seconds == 0 && msg.err == nil {
			wait = min(wait, firstInterval) // there are no rates yet
		}
		m.keep(msg)
		return m, tea.Tick(wait, func(time.Time) tea.Msg { return due{} })
	case due:
		return m, m.take
	case tea.KeyPressMsg:
		if m.typing {
			m.edit(msg.Key())
			return m, nil
		}
		return m, m.press(msg.String())
	}
	return m, nil
}

// firstInterval is the time between the first two samples.
const firstInterval = 500 * time.Millisecond

// keep compares a sample with the last one. While paused nothing changes, so the rates afterwards
// are those of the whole pause.
func (m *model) keep(s sampled) {
	m.failure = s.err
	if m.paused || s.err != nil {
		return
	}
	m.report, m.last = compare(m.last, s.sample, m.users), s.sample
}

// edit handles a key while the filter is entered.
func (m *model) edit(key tea.Key) {
	m.skip = 0
	switch key.Code {
	case tea.KeyEnter:
		m.typing = false
	case tea.KeyEscape:
		m.typing, m.filter = false, ""
	case tea.KeyBackspace:
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		for _, r := range key.Text {
			if unicode.IsPrint(r) && len(m.filter) < maxFilter {
				m.filter += string(r)
			}
		}
	}
}

// maxFilter bounds the bytes of the filter, so that it fits on a line.
const maxFilter = 40

// press handles a key.
func (m *model) press(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "s":
		m.sort = (m.sort + 1) % orders
	case "r":
		m.reverse = !m.reverse
	case "p", "space":
		m.paused = !m.paused
	case "/":
		m.typing = true
	case "?", "h":
		m.help = !m.help
	case "0", "esc":
		m.only, m.skip, m.help, m.filter = 0, 0, false, ""
	case "1", "2", "3", "4", "5", "6":
		m.only, m.skip = int(key[0]-'0'), 0
	case "tab":
		m.only, m.skip = (m.only+1)%(len(m.report.sections(m.report.At))+1), 0
	case "up", "k":
		m.skip = max(0, m.skip-1)
	case "down", "j":
		m.skip++
	case "pgup":
		m.skip = max(0, m.skip-m.room())
	case "pgdown":
		m.skip += m.room()
	case "+":
		m.interval = min(2*m.interval, time.Minute)
	case "-":
		m.interval = max(m.interval/2, MinInterval)
	}
	return nil
}

// MinInterval is the shortest time between two samples.
const MinInterval = 100 * time.Millisecond
