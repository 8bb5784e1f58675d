package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
)

func (a *app) lsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [-l] [--mount MOUNTPOINT] [--json] [hmc:PATH...]",
		Short: "List files of a daemon, with a mount or without one",
		Long:  "List directories and files; without an argument, the devices.\n\n" + hmcText,
		Args:  arguments(0, -1, "any number of paths"),
	}
	t := a.addMount(cmd)
	var long bool
	cmd.Flags().BoolVarP(&long, "long", "l", false, "Show mode, owner, size and time.")
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		if len(args) == 0 {
			args = []string{hmcPrefix}
		}
		rows := []lsRow{}
		err := t.each(ctx, args, func(s *sessionTree, text, name string) error {
			more, err := list(s, name, long || *asJSON)
			rows = append(rows, more...)
			return named(text, err)
		})
		if perr := answer(a.Stdout, *asJSON, rows, func(w io.Writer, rows []lsRow) error { return printLs(w, rows, long) }); perr != nil {
			return perr
		}
		return err
	})
}

// lsRow is one file of `hmcfs ls --json`.
type lsRow struct {
	// Path is the file's, below hmc:.
	Path string `json:"path"`
	// Type is file, directory or special, as of `hmcfs stat`.
	Type     string    `json:"type"`
	Mode     string    `json:"mode"`
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// list returns the entries of a directory, or a file alone.
func list(s *sessionTree, name string, described bool) ([]lsRow, error) {
	info, err := s.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []lsRow{describedRow(name, info)}, nil
	}
	entries, err := s.ReadDir(name)
	if err != nil {
		return nil, err
	}
	rows := make([]lsRow, 0, len(entries))
	for _, e := range entries {
		row := lsRow{Path: path.Join(name, e.Name()), Type: typeOf(e.Type())}
		if described {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was removed meanwhile
			}
			if err != nil {
				return rows, err
			}
			row = describedRow(row.Path, info)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func describedRow(name string, info fs.FileInfo) lsRow {
	row := lsRow{
		Path: name, Type: typeOf(info.Mode()), Mode: info.Mode().String(), Size: info.Size(), Modified: info.ModTime(),
	}
	if sys, is := info.Sys().(*syscall.Stat_t); is {
		row.UID, row.GID = sys.Uid, sys.Gid
	}
	return row
}

func printLs(w io.Writer, rows []lsRow, long bool) error {
	if !long {
		for _, r := range rows {
			fmt.Fprintln(w, hmcPrefix+r.Path)
		}
		return nil
	}
	t := newTable(w, "MODE", "UID", "GID", "SIZE", "MODIFIED", "PATH")
	for _, r := range rows {
		t.row(r.Mode, r.UID, r.GID, r.Size, r.Modified.Format(time.DateTime), hmcPrefix+r.Path)
	}
	return t.Flush()
}

func (a *app) catVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cat [--mount MOUNTPOINT] hmc:PATH...",
		Short: "Write files of a daemon to standard output",
		Long:  "Write the bytes of files to standard output, one after the other.\n\n" + hmcText,
		Args:  arguments(1, -1, "at least one path"),
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
		Use:   "rm [-r] [-f] [--mount MOUNTPOINT] hmc:PATH...",
		Short: "Remove files of a daemon",
		Long:  "Remove files, and with -r directories with their contents. Symbolic links are not followed.\n\n" + hmcText,
		Args:  arguments(1, -1, "at least one path"),
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
			"under its name there.\n\n" + hmcText,
		Args: arguments(2, -1, "SRC and DST"),
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
		Use:   "mkdir [-p] [--mount MOUNTPOINT] hmc:PATH...",
		Short: "Create directories of a daemon",
		Long:  "Create directories.\n\n" + hmcText,
		Args:  arguments(1, -1, "at least one path"),
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
