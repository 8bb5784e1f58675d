package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage returns one command's manual page in man(7) format.
func manPage(c *cobra.Command) string {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"hmcfs\" \"hmcfs manual\"\n", strings.ToUpper(roff(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(useLine(c)))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(text))
	if c.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.Trim(flagName(f), "`")), roff(f.Usage))
			}
		})
	}
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	b.WriteString(".SH SEE ALSO\n")
	var others []string
	walk(c.Root(), func(o *cobra.Command) {
		if o != c {
			others = append(others, fmt.Sprintf(".BR %s (1)", roff(strings.ReplaceAll(o.CommandPath(), " ", "-"))))
		}
	})
	b.WriteString(strings.Join(others, ",\n") + "\n")
	return b.String()
}

// roff escapes a text so that it is not interpreted as commands.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
