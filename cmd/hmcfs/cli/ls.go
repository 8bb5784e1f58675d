package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func (a *app) lsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [-l] [-1] [--mount MOUNTPOINT] [--json] [PATH...]",
		Short: "List devices, or files with where their bytes are",
		Long: "List the devices of a mount or, with a PATH, a directory or a file: device, size, dtype, shape, state,\n" +
			"key, and the path that the bytes took at the last transfer.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(0, -1, "any number of paths"),
	}
	t := a.addMount(cmd)
	var long, names bool
	cmd.Flags().BoolVarP(&long, "long", "l", false, "Show mode, owner and time too.")
	cmd.Flags().BoolVarP(&names, "names", "1", false, "Show only the paths, one in a line.")
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		if len(args) == 0 {
			return t.listDevices(ctx, *asJSON, names)
		}
		rows := []lsRow{}
		err := t.each(ctx, args, func(s *sessionTree, text, name string) error {
			more, err := list(ctx, s, text, name, !names || *asJSON)
			rows = append(rows, more...)
			return named(text, err)
		})
		if perr := answer(a.Stdout, *asJSON, rows, func(w io.Writer, rows []lsRow) error { return printLs(w, rows, long, names) }); perr != nil {
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
	Device   string    `json:"device,omitempty"`
	Dtype    string    `json:"dtype,omitempty"`
	Shape    string    `json:"shape,omitempty"`
	State    string    `json:"state,omitempty"`
	Key      string    `json:"key,omitempty"`
	LastPath string    `json:"last_path,omitempty"`
	// shown is the path for people: as the user has written that of the directory.
	shown string
}

// attributeReaders is the number of files whose attributes are requested at a time.
const attributeReaders = 8

// list returns the entries of a directory, or a file alone. Without described it knows only their
// paths and types.
func list(ctx context.Context, s *sessionTree, text, name string, described bool) ([]lsRow, error) {
	info, err := s.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		row := lsRow{Path: name, Type: typeOf(info.Mode()), shown: text}
		if described {
			row.describe(s, info)
		}
		return []lsRow{row}, nil
	}
	entries, err := s.ReadDir(name)
	if err != nil {
		return nil, err
	}
	rows := make([]lsRow, len(entries))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(attributeReaders)
	for i, e := range entries {
		row := &rows[i]
		*row = lsRow{Path: path.Join(name, e.Name()), Type: typeOf(e.Type()), shown: below(text, e.Name())}
		if described {
			group.Go(func() error { return cmp.Or(ctx.Err(), row.fill(s, e)) })
		}
	}
	err = group.Wait()
	return slices.DeleteFunc(rows, func(r lsRow) bool { return r.Path == "" }), err
}

// fill describes an entry of a directory. One that was removed meanwhile loses its path.
func (r *lsRow) fill(s *sessionTree, e fs.DirEntry) error {
	info, err := e.Info()
	if target, serr := s.Stat(r.Path); e.Type()&fs.ModeSymlink != 0 && serr == nil {
		info = target // the object of a key
	}
	if errors.Is(err, fs.ErrNotExist) {
		r.Path = ""
		return nil
	}
	if err == nil {
		r.describe(s, info)
	}
	return err
}

// below returns how the user names a file of a directory.
func below(dir, name string) string {
	if dir == hmcPrefix || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// describe sets what a file's metadata and attributes say.
func (r *lsRow) describe(s *sessionTree, info fs.FileInfo) {
	r.Mode, r.Size, r.Modified = info.Mode().String(), info.Size(), info.ModTime()
	if sys, is := info.Sys().(*syscall.Stat_t); is {
		r.UID, r.GID = sys.Uid, sys.Gid
	}
	if info.IsDir() {
		if first, _, _ := strings.Cut(r.Path, "/"); !isOwnDir(first) {
			r.Device = first
		}
		return
	}
	for name, field := range map[string]*string{
		deviceXattr: &r.Device, dtypeXattr: &r.Dtype, shapeXattr: &r.Shape, stateXattr: &r.State, keyXattr: &r.Key, pathXattr: &r.LastPath,
	} {
		value, err := s.Attribute(r.Path, name)
		if err == nil {
			*field = strings.TrimRight(string(value), "\x00\n")
		}
	}
}

func printLs(w io.Writer, rows []lsRow, long, names bool) error {
	if names {
		for _, r := range rows {
			fmt.Fprintln(w, r.shown)
		}
		return nil
	}
	if len(rows) == 0 {
		return nil
	}
	heads := []any{"DEVICE", "SIZE", "DTYPE", "SHAPE", "STATE", "KEY", "LAST TRANSFER", "PATH"}
	if long {
		heads = append([]any{"MODE", "UID", "GID", "MODIFIED"}, heads...)
	}
	t := newTable(w, heads...)
	for _, r := range rows {
		shown, size := r.shown, any(r.Size)
		if r.Type == "directory" {
			shown, size = shown+"/", ""
		}
		cells := []any{r.Device, size, r.Dtype, r.Shape, r.State, r.Key, r.LastPath, shown}
		if long {
			cells = append([]any{r.Mode, r.UID, r.GID, r.Modified.Format(time.DateTime)}, cells...)
		}
		t.row(cells...)
	}
	return t.Flush()
}

// listDevices shows the devices of the mount.
func (t *trees) listDevices(ctx context.Context, asJSON, names bool) error {
	s, _, err := t.find(ctx, hmcPrefix)
	if err != nil {
		return err
	}
	rows, err := devicesOf(s)
	if err != nil {
		return err
	}
	return answer(t.Stdout, asJSON, rows, func(w io.Writer, rows []deviceUse) error {
		table := newTable(w, "DEVICE", "SIZE", "USED", "FREE", "PATH")
		for _, r := range rows {
			if names {
				fmt.Fprintln(w, r.Device)
				continue
			}
			table.row(r.Device, r.Size, r.Used, r.Free, r.shown)
		}
		if names {
			return nil
		}
		return table.Flush()
	})
}
