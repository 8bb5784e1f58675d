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

// docsVerb generates documentation from the command tree. It is used by the Makefile.
func (a *app) docsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "docs (cli | config | man DIR)",
		Short:  "Generate documentation from the commands and options",
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

// walk calls fn with every visible command, parents first.
func walk(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			walk(c, fn)
		}
	}
}

const generated = "<!-- Made by `hmcfs docs`; change the commands instead. -->\n\n"

// cliDoc returns the content of docs/cli.md.
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
error. Each error is one line that names the object, the cause and the remedy. The
output of ` + "`--json`" + ` only ever gains new fields.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed; for exist: a key does not exist |
| 2 | an error in the flags, the environment or a config file; nothing was changed |
| 3 | the path is not on an hmcfs mount |
| 4 | some of several failed (cp, stat, and all commands for keys), or there are lost objects (fsck) |
| 5 | fsck found records that contradict each other, and did not repair them all |
| 6 | run: outputs are not as expected |
| 124 | run: timed out |
| 130, 143 | stopped by SIGINT (^C) or SIGTERM; see below for what a copy leaves behind |

Named ` + "`mount.hmcfs`" + `, the program is the helper that mount(8) calls for
` + "`mount -t hmcfs`" + ` and fstab; it then exits with the codes of mount(8): 0, 1 for an
error in the options, 32 for a failure. ` + "`hmcfs completion`" + ` prints completions for bash,
zsh, fish and PowerShell.

## Commands for keys

publish, subscribe, mset, mget, d2h, h2d, exist, wait, del, ls-keys, expire and
watch operate on keys ([semantics](semantics.md#keys)). Each key is handled
independently: the exit code is 0 only if every one succeeded, and each that
failed has a line on standard error. All keys are checked before any bytes move;
a call with an invalid key, with a key twice, or with more than 10 000 keys is
refused as a whole, with exit code 2.

    hmcfs d2h: key "x": can't find objects; hmcfs ls-keys lists the keys

With ` + "`--json`" + ` there is one object for each key, in the order of the call: ` + "`key`" + `,
` + "`ok`" + `, ` + "`path`" + `, ` + "`bytes`" + `, ` + "`seconds`" + `, ` + "`way`" + ` (the path that the bytes took), ` + "`skipped`" + `,
and for a key that failed ` + "`error`" + ` and ` + "`code`" + `, a word of the table in [seeds](seeds.md).
Fields that do not apply are omitted; ` + "`exist`" + ` has only ` + "`key`" + ` and ` + "`exists`" + `.

The mount is that of ` + "`--mount`" + `, that of the paths, or the only one. The path of a
key follows the last ` + "`=`" + ` before the first ` + "`/`" + `, since a key may contain ` + "`=`" + `:

| written | key | path |
| --- | --- | --- |
| ` + "`a=b=/mnt/hmc/sim0/f`" + ` | ` + "`a=b`" + ` | ` + "`/mnt/hmc/sim0/f`" + ` |
| ` + "`k=./a=b`" + ` | ` + "`k`" + ` | ` + "`./a=b`" + ` |
| ` + "`a=b=-`" + ` | ` + "`a=b`" + ` | standard output |
| ` + "`-- -k=./f`" + ` | ` + "`-k`" + ` | ` + "`./f`" + ` |

` + "`-`" + ` among the keys reads further keys from standard input, one per line; there, a
line ` + "`-`" + ` is the key ` + "`-`" + ` itself. In a shell, quote keys that contain ` + "`! # ( ) * ;`" + `.

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

// configDoc returns the content of docs/config.md.
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

// code formats a word as code.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

const variablesIntro = `
# Collectives

Options of collectives that a program does not set itself are taken from
environment variables: ` + "`hmcfs perf collective`" + ` uses all of them, ` + "`hmcfs allreduce`" + `
and the other commands for files the algorithm and ` + "`strict`" + `, and your own program
what it requests from ` + "`transport/env`" + `. Each variable is read first under its hmcfs
name, then under the HCOMM name of the same option; an empty variable counts as
unset. In order of precedence, a value comes from the program's own options, from
what it sets for one group (by the name without ` + "`HMCFS_`" + `, in lower case), from the
environment, or from the default. ` + "`hmcfs config show`" + ` shows each value and its source.

An invalid value is refused with the message of HCOMM: ` + "`" + `EI0001: Value 0 for
environment variable HCCL_BUFFSIZE is invalid. Expected value: an integer from 1
to 65536.` + "`" + ` All ranks of a job need the same values: a group compares the resulting options.
Options of HCOMM for hardware that hmcfs does not drive are checked and then
ignored; a list of permitted addresses and a plugin are refused, so that nobody
relies on them.

In HCOMM's grammar ` + "`ring`" + ` is ring, ` + "`H-D_R`" + ` doubling, ` + "`NHR`" + ` and ` + "`NHR_V1`" + ` nhr,
` + "`pairwise`" + ` and ` + "`fullmesh`" + ` pairwise, ` + "`pipeline`" + `, ` + "`AHC`" + ` and ` + "`AHC_BROKE`" + ` hierarchical,
` + "`NB`" + ` binomial for broadcast and reduce and nhr otherwise; ` + "`null`" + ` and ` + "`NA`" + ` leave it
to the cost model. A call that an algorithm cannot execute is left to the model too.

`

const configIntro = `Every option of a mount can be set by a flag, in the options of fstab, in the
environment or in a config file. The source with the highest precedence replaces
all others: a flag, then the environment, the user's config file, the system's
config file, the default. ` + "`hmcfs config show`" + ` shows each value and its source.

Config files are ` + "`/etc/hmcfs/config.yaml`" + ` and ` + "`$XDG_CONFIG_HOME/hmcfs/config.yaml`" + `,
or, instead of both, the file named by ` + "`--config`" + ` or ` + "`HMCFS_CONFIG`" + `:

` + "``" + `` + "`" + `yaml
device:
  - host,size=4GiB
  - opencl:0,size=2GiB
read_ahead: 8MiB
allow_other: true
` + "``" + `` + "`" + `

Unknown keys are refused, and all errors are reported at once. Sizes are written
as 512MiB or 2GB (MiB and a bare M are binary, MB is decimal), times as 1s or
500ms. In the environment, the items of a list are separated by spaces or
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
