package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/transport/env"
)

// docsVerb writes what is made from the command tree. People call it through
// the Makefile.
func (a *app) docsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "docs (cli | config | man DIR)",
		Short:  "Write the documents that are made from the commands and options",
		Hidden: true,
		Args:   arguments(1, 2, "cli, config, or man DIR"),
	}
	cmd.RunE = running(func(_ context.Context, args []string) error {
		root := a.root() //nolint:contextcheck // cobra hands the context to the verb
		switch {
		case args[0] == "cli" && len(args) == 1:
			_, err := fmt.Fprint(a.out(), cliDoc(root))
			return err
		case args[0] == "config" && len(args) == 1:
			_, err := fmt.Fprint(a.out(), configDoc())
			return err
		case args[0] == "man" && len(args) == 2:
			return writeMan(root, args[1])
		}
		return usage(fmt.Errorf("hmcfs docs: %q is unknown; use cli, config, or man DIR", strings.Join(args, " ")))
	})
	return cmd
}

// walk calls fn with every command that people see, parents first.
func walk(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			walk(c, fn)
		}
	}
}

const generated = "<!-- Made by `hmcfs docs`; change the commands instead. -->\n\n"

// cliDoc is docs/cli.md.
func cliDoc(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(generated + "# The command line\n\n" + cliIntro)
	walk(root, func(c *cobra.Command) {
		if c == root || c.Name() == "config" {
			return
		}
		fmt.Fprintf(&b, "## %s\n\n%s.\n\n```\n%s\n```\n\n", c.CommandPath(), c.Short, useLine(c))
		if c.Long != "" {
			fmt.Fprintf(&b, "%s\n\n", c.Long)
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", c.Example)
		}
		writeFlags(&b, c)
	})
	return strings.TrimRight(b.String(), "\n") + "\n"
}

const cliIntro = `Answers go to standard output; warnings, progress and errors go to standard
error. An error is one line for each fault, and names the thing, the cause and
the way out. What ` + "`--json`" + ` prints only ever gets new fields.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed; for exist: a key is not there |
| 2 | a fault in the flags, the environment or a config file; nothing was touched |
| 3 | the path is on no hmcfs mount |
| 4 | some of several failed (cp, stat, and all verbs of keys), or there are lost objects (fsck) |
| 5 | fsck found records that contradict each other, and did not mend them all |
| 6 | run: outputs are not what was expected of them |
| 124 | run: time was over |
| 130, 143 | stopped by SIGINT (^C) or SIGTERM; what a copy leaves behind stands below |

As ` + "`mount.hmcfs`" + ` the program is what mount(8) calls for ` + "`mount -t hmcfs`" + ` and
fstab; it answers with the exit codes of mount(8) then: 0, 1 for a fault in
the options, 32 for a failure. ` + "`hmcfs completion`" + ` prints completions for bash,
zsh, fish and PowerShell.

## Verbs of keys

publish, subscribe, mset, mget, d2h, h2d, exist, wait, del, ls-keys, expire and
watch are of keys ([semantics](semantics.md#keys)). Each key is on its own: the
exit code is 0 only if every one succeeded, and each that failed has a line on
standard error. All keys are checked before anything moves; a call with one that
can't be, with one twice, or with more than 10 000 is refused whole, with 2.

    hmcfs d2h: key "x": can't find objects; hmcfs ls-keys shows what is there

With ` + "`--json`" + ` there is one object for each key, in the order of the call: ` + "`key`" + `,
` + "`ok`" + `, ` + "`path`" + `, ` + "`bytes`" + `, ` + "`seconds`" + `, ` + "`way`" + ` (which way the bytes took), ` + "`skipped`" + `,
and of one that failed ` + "`error`" + ` and ` + "`code`" + `, a word of the table in [seeds](seeds.md).
What has no meaning is left out; ` + "`exist`" + ` has ` + "`key`" + ` and ` + "`exists`" + ` alone.

The mount is that of ` + "`--mount`" + `, that of the paths, or the only one there is. A
path behind a key stands behind the last ` + "`=`" + ` before the first ` + "`/`" + `, since ` + "`=`" + ` may be
in a key:

| written | key | path |
| --- | --- | --- |
| ` + "`a=b=/mnt/hmc/sim0/f`" + ` | ` + "`a=b`" + ` | ` + "`/mnt/hmc/sim0/f`" + ` |
| ` + "`k=./a=b`" + ` | ` + "`k`" + ` | ` + "`./a=b`" + ` |
| ` + "`a=b=-`" + ` | ` + "`a=b`" + ` | standard output |
| ` + "`-- -k=./f`" + ` | ` + "`-k`" + ` | ` + "`./f`" + ` |

` + "`-`" + ` among the keys reads more of them from standard input, one in each line. The
key ` + "`-`" + ` itself is a line of its own there. In a shell, quote keys with ` + "`! # ( ) * ;`" + `.

`

func useLine(c *cobra.Command) string {
	if c.HasParent() {
		return c.Parent().CommandPath() + " " + c.Use
	}
	return c.Use
}

func writeFlags(b *strings.Builder, c *cobra.Command) {
	var rows []string
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", flagName(f), defaultText(f), cell(f.Usage)))
	})
	if len(rows) == 0 {
		return
	}
	b.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n\n")
}

func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.Value.Type() != "bool" {
		name += " " + strings.ToUpper(f.Value.Type())
	}
	return "`" + name + "`"
}

func defaultText(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "[]" || f.Value.Type() == "bool" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// configDoc is docs/config.md.
func configDoc() string {
	var b strings.Builder
	b.WriteString(generated + "# Options\n\n" + configIntro)
	b.WriteString("| option | key and `-o` word | environment | type | default | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, p := range config.Table() {
		byDefault := ""
		if p.Default != "" {
			byDefault = "`" + p.Default + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | `%s` | %s | %s | %s |\n", p.Name, p.Key(), p.Env(), p.Kind, byDefault, cell(p.Doc))
	}
	b.WriteString(variablesIntro)
	b.WriteString("| variable | HCOMM's name | values | default | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range env.Knobs() {
		meaning := k.Meaning
		if k.Ignored != "" {
			meaning += " Ignored: " + k.Ignored + "."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, code(k.Alias), cell(strings.ReplaceAll(k.Expected, "<", `\<`)), code(k.Default), cell(meaning))
	}
	return b.String()
}

// code is a word as it is written.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

const variablesIntro = `
# Collectives

What a program does not say itself about collectives is set by variables:
` + "`hmcfs perf collective`" + ` takes all of them, ` + "`hmcfs allreduce`" + ` and its like the
algorithm and ` + "`strict`" + `, a program of yours what it asks
` + "`transport/env`" + ` for. Each is read under our name first, then under
the one that HCOMM has for the same; an empty one is none. The strongest source
wins: the program's own options, then what it sets for one group (by the name
without ` + "`HMCFS_`" + `, in small letters), then the environment, then the default.
` + "`hmcfs config show`" + ` tells each value and its source.

A value is wholly right or it is refused, as HCOMM refuses it: ` + "`EI0001: Value 0 for" + `
environment variable HCCL_BUFFSIZE is invalid. Expected value: an integer from 1
to 65536.` + "`" + ` All ranks of a job need the same: a group compares what came of it.
What HCOMM says to hardware that hmcfs does not drive is checked and then
ignored; a list of permitted addresses and a plugin are refused, as nobody
should believe to have them.

Under HCOMM's grammar ` + "`ring`" + ` is ring, ` + "`H-D_R`" + ` doubling, ` + "`NHR`" + ` and ` + "`NHR_V1`" + ` nhr,
` + "`pairwise`" + ` and ` + "`fullmesh`" + ` pairwise, ` + "`pipeline`" + `, ` + "`AHC`" + ` and ` + "`AHC_BROKE`" + ` hierarchical,
` + "`NB`" + ` binomial for broadcast and reduce and nhr otherwise; ` + "`null`" + ` and ` + "`NA`" + ` leave it
to the cost model. An algorithm that can't do a call leaves it to the model too.

`

const configIntro = `Every option of a mount can be set by a flag, in fstab's options, in the
environment or in a config file. The strongest source wins whole: a flag over
the environment, that over the user's config file, that over the machine's,
that over the default. ` + "`hmcfs config show`" + ` tells each value and its source.

Config files are ` + "`/etc/hmcfs/config.yaml`" + ` and ` + "`$XDG_CONFIG_HOME/hmcfs/config.yaml`" + `,
or the one that ` + "`--config`" + ` or ` + "`HMCFS_CONFIG`" + ` names instead of both:

` + "```yaml" + `
device:
  - host,size=4GiB
  - opencl:0,size=2GiB
read_ahead: 8MiB
allow_other: true
` + "```" + `

Unknown keys are refused, and all faults are told at once. Sizes are written
as 512MiB or 2GB (MiB and a bare M are binary, MB is decimal), times as 1s or
500ms. In the environment, the parts of a list stand apart by spaces or
semicolons.

`

// writeMan writes a man page for each command into a directory.
func writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write man pages: %w", err)
	}
	var first error
	walk(root, func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(manPage(c)), 0o644); err != nil && first == nil {
			first = fmt.Errorf("write man pages: %w", err)
		}
	})
	return first
}
