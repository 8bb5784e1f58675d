package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// colours is a terminal that shows colours.
type colours struct{ *os.File }

// The escape sequences of a terminal.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// coloured returns a stream as colours if it is a terminal and the user wants colours there:
// https://no-color.org.
func coloured(w io.Writer, getenv func(string) string) io.Writer {
	f, is := w.(*os.File)
	if !is || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return w
	}
	return colours{f}
}

// fileOf returns the file of a stream, for another process; other streams stay as they are.
func fileOf(w io.Writer) io.Writer {
	if c, is := w.(colours); is {
		return c.File
	}
	return w
}

// paint returns a text with a colour if the stream shows colours.
func paint(w io.Writer, colour, text string) string {
	if _, is := w.(colours); !is || text == "" {
		return text
	}
	return colour + text + plain
}

// paintState paints a cell of a table if it is a word for a state.
func paintState(w io.Writer, cell string) string {
	switch cell {
	case "ok", "live", "connected":
		return paint(w, green, cell)
	case "note", "not answering":
		return paint(w, yellow, cell)
	case "dead", "lost", "problem", "unreachable":
		return paint(w, red, cell)
	}
	return cell
}
