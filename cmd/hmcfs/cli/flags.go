package cli

import (
	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

// optionFlags are the flags of the table of options. They only record their values, which
// are checked together with those of the other sources.
type optionFlags struct {
	given  map[string][]config.Given
	config string
}

// completeWith makes shells complete a flag's value with one of some words.
func completeWith(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there, or has one already
	}
}

func familyNames() []string {
	return mapped(daemon.FamilyParams(), func(f config.Family) string { return f.Name })
}

// addOptions adds the flags of the table, but for those that without selects, and --config to a
// command.
func addOptions(cmd *cobra.Command, without func(*config.Option) bool) *optionFlags {
	f := &optionFlags{given: map[string][]config.Given{}}
	cmd.Flags().StringVar(&f.config, "config", "", "Config file to read instead of "+config.SystemFile+" and the user's.")
	for _, p := range config.Table() {
		if without != nil && without(p) {
			continue
		}
		flag := cmd.Flags().VarPF(&noteValue{option: p, into: f}, p.Name, p.Short, p.Doc)
		flag.DefValue = p.Default
		if p.IsBool() {
			flag.NoOptDefVal = "true"
		}
	}
	return f
}

// resolve determines every option from all sources.
func (f *optionFlags) resolve(a *app) (*config.Settings, error) {
	s, err := config.Resolve(config.Inputs{
		Flags: f.given, Getenv: a.Getenv, Files: config.Files(f.config, a.Getenv), Families: daemon.FamilyParams(),
	})
	if err != nil {
		return nil, usage(err)
	}
	return s, nil
}

// noteValue is a flag value that records its text.
type noteValue struct {
	option *config.Option
	into   *optionFlags
}

// Set records one value.
func (v *noteValue) Set(text string) error {
	source := "flag --" + v.option.Name
	if v.option.Short != "" {
		source = "flag -" + v.option.Short
	}
	v.into.given[v.option.Name] = append(v.into.given[v.option.Name], config.Given{Text: text, Source: source})
	return nil
}

// String returns the text of the value before anything is set.
func (v *noteValue) String() string { return "" }

// Type returns the name of the type for help texts.
func (v *noteValue) Type() string { return v.option.Kind }
