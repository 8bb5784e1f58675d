package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
)

func (a *app) catVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "cat [--mount MOUNTPOINT] hmc:PATH...",
		Short:       "Write files of a daemon to standard output",
		Long:        "Write the bytes of files to standard output, one after the other.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(1, -1, "at least one path"),
	}
	t := a.addMount(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		return t.each(ctx, args, func(s *sessionTree, text, name string) error {
			f, err := s.Open(name, syscall.O_RDONLY, 0)
			if err != nil {
				return named(text, err)
			}
			defer func() { _ = f.Close() }() // nothing was written to it
			return named(text, pour(ctx, a.Stdout, f))
		})
	})
}

// pour copies what is left of a file until the context ends.
func pour(ctx context.Context, to io.Writer, from io.Reader) error {
	buffer := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.Read(buffer)
		if n > 0 {
			if _, failure := to.Write(buffer[:n]); failure != nil {
				return fmt.Errorf("write to standard output: %w", failure)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (a *app) rmVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "rm [-r] [-f] [--mount MOUNTPOINT] hmc:PATH...",
		Short:       "Remove files of a daemon",
		Long:        "Remove files, and with -r directories with their contents. Symbolic links are not followed.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(1, -1, "at least one path"),
	}
	t := a.addMount(cmd)
	var recursive, force bool
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "Remove directories with their contents.")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "Ignore files that do not exist.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		return t.each(ctx, args, func(s *sessionTree, text, name string) error {
			info, err := s.Lstat(name)
			switch {
			case force && errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return named(text, err)
			case hasRootName(name):
				return usage(fmt.Errorf("%s: the directories of devices can't be removed", text))
			case info.IsDir() && !recursive:
				return usage(fmt.Errorf("%s is a directory; remove it with -r", text))
			}
			return removeAll(ctx, s, name, info.IsDir())
		})
	})
}

// removeAll removes a file, or a directory with its contents. What has disappeared meanwhile is
// no error.
func removeAll(ctx context.Context, s *sessionTree, name string, isDir bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isDir {
		entries, err := s.ReadDir(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if err := removeAll(ctx, s, path.Join(name, e.Name()), e.IsDir()); err != nil {
				return err
			}
		}
	}
	if err := s.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *app) mvVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mv [--mount MOUNTPOINT] hmc:SRC... hmc:DST",
		Short: "Rename files of a daemon, or move them to another device",
		Long: "Rename a file or directory, or move files into a directory. Between the directories of two\n" +
			"devices the bytes are moved from device to device. A file moved into hmc:publish is published\n" +
			"under its name there.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(2, -1, "SRC and DST"),
	}
	t := a.addMount(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		sources, target := args[:len(args)-1], args[len(args)-1]
		to, toName, err := t.find(ctx, target)
		if err != nil {
			return err
		}
		info, err := to.Stat(toName)
		into := err == nil && info.IsDir()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return named(target, err)
		}
		if len(sources) > 1 && !into {
			return usage(fmt.Errorf("%s is not a directory; several sources need one", target))
		}
		return t.each(ctx, sources, func(s *sessionTree, text, name string) error {
			if s != to {
				return usage(fmt.Errorf("%s and %s are of two daemons; copy with hmcfs cp", text, target))
			}
			end := toName
			if into {
				end = path.Join(toName, path.Base(name))
			}
			if err := s.noDevice(target, end); err != nil {
				return err
			}
			return s.Rename(name, end)
		})
	})
}

func (a *app) mkdirVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "mkdir [-p] [--mount MOUNTPOINT] hmc:PATH...",
		Short:       "Create directories of a daemon",
		Long:        "Create directories.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(1, -1, "at least one path"),
	}
	t := a.addMount(cmd)
	var parents bool
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "Create the directories above too; an existing directory is no error.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		return t.each(ctx, args, func(s *sessionTree, text, name string) error {
			if err := s.noDevice(text, name); err != nil {
				return err
			}
			if parents {
				return named(text, s.MkdirAll(name, 0o777))
			}
			return named(text, s.Mkdir(name, 0o777))
		})
	})
}

// throughSession prepares a copy of which some files are reached through sessions.
func (t *trees) throughSession(ctx context.Context, paths []string, o *copier.Options) (err error) {
	if o.Find, err = t.ofCopy(ctx, paths); err != nil {
		return err
	}
	target := paths[len(paths)-1]
	tree, name, _ := o.Find(target)
	s, is := tree.(*sessionTree)
	if !is {
		return nil
	}
	return s.noDevice(target, name)
}
