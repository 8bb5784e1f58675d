package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices/host"
)

// completeLimit bounds the time that a completion may take: a person waits for it.
const completeLimit = 2 * time.Second

// completer completes what a user types.
type completer struct{ *app }

// completeCommands makes shells complete mounts, devices, keys and files.
func (a completer) completeCommands(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		a.completeCommand(cmd)
		for _, sub := range cmd.Commands() {
			a.completeCommand(sub)
		}
	}
}

func (a completer) completeCommand(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("mount"); f != nil {
		register(cmd, f.Name, a.completeMounts)
	}
	if f := cmd.Flags().Lookup("device"); f != nil {
		complete := a.completeMountedDevices
		if isOption(f) || cmd.Name() == "bind" {
			complete = completeDevices
		}
		register(cmd, f.Name, complete)
	}
	switch topic := cmd.Annotations[topicKey]; {
	case topic == topicKeys || cmd.Name() == "ls-keys":
		cmd.ValidArgsFunction = a.completeKeys
	case topic == topicPairs:
		cmd.ValidArgsFunction = a.completePairs
	case topic == topicFiles:
		cmd.ValidArgsFunction = a.completeFiles
	case strings.HasSuffix(cmd.Use, "MOUNTPOINT]") || strings.HasSuffix(cmd.Use, "MOUNTPOINT") && cmd.Name() != "mount":
		cmd.ValidArgsFunction = a.completeMounts
	}
}

// register sets the completion of a flag, unless it has one.
func register(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the error says that it has one
}

// begun returns the words that begin with what the user has written.
func begun(words []string, written string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, written) })
}

func (a completer) completeMounts(_ *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := a.mounts() // without a table, there is nothing to complete
	points := mapped(all, func(m place.Mount) string { return m.MountPoint })
	// A path that is not a mount yet may be written as well.
	return begun(points, written), cobra.ShellCompDirectiveDefault
}

// completeDevices completes the devices of this machine, by their names.
func completeDevices(cmd *cobra.Command, _ []string, written string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeLimit)
	defer cancel()
	var names []string
	for _, row := range discover(ctx, daemon.Families(host.Options{}, nil)) {
		for _, d := range row.Devices {
			names = append(names, string(d.Name)+"\t"+d.Model)
		}
	}
	return begun(names, written), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeMountedDevices completes the devices of the mount.
func (a completer) completeMountedDevices(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
	s, end := a.completed(cmd, args)
	defer end()
	if s == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	rows, _ := devicesOf(s) // a daemon that does not answer completes nothing
	return begun(mapped(rows, func(r deviceUse) string { return r.Device }), written), cobra.ShellCompDirectiveNoFileComp
}

// completed opens a session with the mount of a command that is being written; nil if there is none.
func (a completer) completed(cmd *cobra.Command, args []string) (s *sessionTree, end func()) {
	t := &trees{app: a.app, sessions: map[string]*sessionTree{}}
	if f := cmd.Flags().Lookup("mount"); f != nil {
		t.mount = f.Value.String()
	} else if len(args) > 0 {
		t.mount = args[0]
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeLimit)
	s, _, err := t.find(ctx, hmcPrefix)
	if err != nil {
		s = nil
	}
	return s, func() {
		t.close()
		cancel()
	}
}

// completeKeys completes the keys of the mount that are not among the arguments yet.
func (a completer) completeKeys(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
	keys, directive := a.keysOf(cmd, written)
	return slices.DeleteFunc(keys, func(k string) bool { return slices.Contains(args, k) }), directive
}

func (a completer) keysOf(cmd *cobra.Command, written string) ([]string, cobra.ShellCompDirective) {
	s, end := a.completed(cmd, nil)
	defer end()
	if s == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir := keysDir
	if f := cmd.Flags().Lookup("published"); cmd.Name() == "subscribe" || f != nil && f.Value.String() == "true" {
		dir = publishDir
	}
	entries, _ := s.ReadDir(dir) // as for devices
	return begun(mapped(entries, func(e os.DirEntry) string { return e.Name() }), written), cobra.ShellCompDirectiveNoFileComp
}

// completePairs completes KEY=PATH: the keys that exist for a command that reads them, and the path.
func (a completer) completePairs(cmd *cobra.Command, _ []string, written string) ([]string, cobra.ShellCompDirective) {
	key, path, paired := strings.Cut(written, "=")
	if !paired {
		switch cmd.Name() {
		case "mget", "h2d", "subscribe":
			keys, directive := a.keysOf(cmd, written)
			return keys, directive | cobra.ShellCompDirectiveNoSpace
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, _ := filepath.Glob(globbed(path) + "*") // the pattern is right
	return mapped(found, func(p string) string { return key + "=" + slashed(p) }), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// globbed quotes a text for a pattern.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

// slashed adds a slash to the name of a directory.
func slashed(path string) string {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return path + "/"
	}
	return path
}

// completeFiles completes hmc:DEVICE/PATH; the shell completes other paths.
func (a completer) completeFiles(cmd *cobra.Command, _ []string, written string) ([]string, cobra.ShellCompDirective) {
	if !isHMC(written) {
		var words []string
		if strings.HasPrefix(hmcPrefix, written) && written != "" {
			words = []string{hmcPrefix}
		}
		return words, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
	}
	s, end := a.completed(cmd, nil)
	defer end()
	if s == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name := strings.TrimPrefix(written, hmcPrefix)
	dir := name[:strings.LastIndexByte(name, '/')+1]
	entries, _ := s.ReadDir(filepath.Clean("./" + dir)) // as for devices
	words := mapped(entries, func(e os.DirEntry) string {
		if e.IsDir() {
			return hmcPrefix + dir + e.Name() + "/"
		}
		return hmcPrefix + dir + e.Name()
	})
	return begun(words, written), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
