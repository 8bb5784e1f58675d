package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// listedKey is one key of `hmcfs ls-keys --json`.
type listedKey struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	Device string `json:"device"`
	// State is that of the object, "unreachable" or "hidden".
	State string `json:"state"`
	// Blobs are the sizes of the blobs, separated by commas.
	Blobs string `json:"blobs,omitempty"`
	// TTL is the number of seconds left; nil means forever.
	TTL *int64 `json:"ttl,omitempty"`
	// Path is the object's file.
	Path string `json:"path"`
}

func (a keyVerbs) lsKeysVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls-keys [--published] [--json] [PREFIX]",
		Short: "List keys",
		Long: "List the keys that begin with PREFIX, in order: size, device, state, remaining time to live in\n" +
			"seconds, and the file. With --published, list those in publish/. The state is hidden if the file\n" +
			"is in a directory of another user that this one may not search.\n\n" +
			"Keys of a node that does not answer are missing, or listed as unreachable. The exit code is then\n" +
			"4, and the node is named.",
		Example: "  hmcfs ls-keys layer",
		Args:    arguments(0, 1, "at most one PREFIX"),
	}
	f := addKeyFlags(cmd)
	published := cmd.Flags().Bool("published", false, "List published keys.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		m, err := a.mountFor(f.mount)
		if err != nil {
			return err
		}
		dir := keysDir
		if *published {
			dir = publishDir
		}
		files, sessions, err := a.keysOf(ctx, m, dir)
		if err != nil {
			return err
		}
		defer sessions.close()
		return a.lsKeys(ctx, m, files, strings.Join(args, ""), *f.asJSON)
	})
}

func (a keyVerbs) lsKeys(ctx context.Context, m place.Mount, files keyFiles, prefix string, asJSON bool) error {
	entries, unlisted := files.list()
	if unlisted != nil && !unasked(unlisted) {
		return unlisted
	}
	rows := []listedKey{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		row, lerr := listKey(files, e.Name())
		if errors.Is(lerr, fs.ErrNotExist) {
			continue // it was removed just now
		}
		if unasked(lerr) {
			lerr, unlisted = nil, errors.Join(unlisted, a.reason(ctx, m, row.Key, false, lerr))
		}
		if lerr != nil {
			return lerr
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b listedKey) int { return strings.Compare(a.Key, b.Key) })
	if err := a.printKeys(m, rows, asJSON); err != nil || unlisted == nil {
		return err
	}
	return &codeError{code: exitPartial, err: a.silentNodes(ctx, m, unlisted)}
}

// silentNodes adds the nodes whose keys are missing from a list to an error.
func (a keyVerbs) silentNodes(ctx context.Context, m place.Mount, err error) error {
	c, failure := a.connect(ctx, m)
	if failure != nil {
		return err
	}
	known, failure := c.Cluster(ctx)
	var names []string
	for _, n := range known.Nodes {
		if n.Problem != "" {
			names = append(names, "node "+string(n.Name))
		}
	}
	if failure != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("keys of %s are missing or unreachable: %w; hmcfs nodes shows why", strings.Join(names, ", "), err)
}

func (a keyVerbs) printKeys(m place.Mount, rows []listedKey, asJSON bool) error {
	if asJSON {
		return printJSON(a.Stdout, rows)
	}
	if len(rows) == 0 {
		return nil
	}
	t := newTable(a.Stdout, "KEY", "SIZE", "DEVICE", "STATE", "TTL", "PATH")
	for _, row := range rows {
		left := ""
		if row.TTL != nil {
			left = fmt.Sprintf("%ds", *row.TTL)
		}
		where := row.Path
		if rel, rerr := filepath.Rel(m.MountPoint, where); rerr == nil {
			where = rel
		}
		t.row(row.Key, row.Size, row.Device, row.State, left, where)
	}
	return t.Flush()
}

func listKey(files keyFiles, key string) (listedKey, error) {
	st, err := files.stat(key)
	var head int64
	if err == nil {
		head, err = tensorHeader(files, key)
	}
	switch {
	case unasked(err):
		return listedKey{Key: key, State: "unreachable", Path: files.path(key)}, err
	case errors.Is(err, fs.ErrPermission):
		return listedKey{Key: key, State: "hidden", Path: files.path(key)}, nil
	case err != nil:
		return listedKey{}, err
	}
	row := listedKey{
		Key: key, Size: st.Size() - head, Device: files.attribute(key, deviceXattr), State: files.attribute(key, stateXattr),
		Blobs: files.attribute(key, blobsXattr), Path: files.path(key),
	}
	if link, lerr := files.link(key); lerr == nil {
		row.Path = files.target(link)
	}
	if left, perr := strconv.ParseInt(files.attribute(key, ttlXattr), 10, 64); perr == nil {
		row.TTL = &left
	}
	return row, nil
}
