package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a *app) statVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stat [--mount MOUNTPOINT] [--json] FILE...",
		Short: "Show where a file's bytes are",
		Long: "Show size, device, extents, dtype, shape, blobs, key, state, and the path of the last\n" +
			"transfer. Extents and exports are shown only to root and to the user who mounted.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(1, -1, "at least one FILE"),
	}
	t := a.addMount(cmd)
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		return t.statAll(ctx, args, *asJSON)
	})
}

// statRow is one file of `hmcfs stat --json`.
type statRow struct {
	File string `json:"file"`
	// Type is file, directory or special.
	Type string `json:"type"`
	adminapi.Object
	// ExtentsKnown is set if this user may see the extents.
	ExtentsKnown bool `json:"extents_known"`
}

func (t *trees) statAll(ctx context.Context, files []string, asJSON bool) error {
	rows := []statRow{}
	var first error
	for _, f := range files {
		row, err := t.stat(ctx, f)
		if err != nil {
			if len(files) == 1 {
				return err
			}
			printError(t.Stderr, err)
			first = err
			continue
		}
		rows = append(rows, row)
	}
	if asJSON {
		if err := printJSON(t.Stdout, rows); err != nil {
			return err
		}
	} else {
		for i, r := range rows {
			if i > 0 {
				fmt.Fprintln(t.Stdout)
			}
			if err := printStat(t.Stdout, r); err != nil {
				return err
			}
		}
	}
	switch {
	case first == nil:
		return nil
	case len(rows) == 0:
		return &codeError{code: exitCode(first), err: errSilent}
	}
	return &codeError{code: exitPartial, err: errSilent}
}

func (t *trees) stat(ctx context.Context, file string) (statRow, error) {
	if inServed(file) || isHMC(file) {
		return t.statOf(ctx, file)
	}
	st, err := os.Stat(file)
	if err != nil {
		return statRow{}, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return statRow{}, fmt.Errorf("%s: no inode number", file)
	}
	m, err := mountOfDev(file, sys.Dev)
	if err != nil {
		return statRow{}, err
	}
	row := newStatRow(file, st.Mode(), sys, func(name string) string { return xattr(file, name) })
	c, err := t.connect(ctx, m)
	if client.IsForbidden(err) {
		return row, nil
	}
	if err != nil {
		return row, err
	}
	return row, row.fill(ctx, c)
}

// statOf is stat for a file that is reached through a session.
func (t *trees) statOf(ctx context.Context, file string) (statRow, error) {
	s, name, err := t.find(ctx, file)
	if err != nil {
		return statRow{}, err
	}
	st, err := s.Stat(name)
	if err != nil {
		return statRow{}, named(file, err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return statRow{}, fmt.Errorf("%s: no inode number", file)
	}
	row := newStatRow(file, st.Mode(), sys, func(attribute string) string {
		value, err := s.Attribute(name, attribute)
		if err != nil {
			return "" // it has none
		}
		return strings.TrimRight(string(value), "\x00\n")
	})
	return row, row.fill(ctx, s.client)
}

func newStatRow(file string, mode fs.FileMode, sys *syscall.Stat_t, xattr func(string) string) statRow {
	row := statRow{File: file, Type: typeOf(mode), Object: objectFromXattrs(xattr)}
	row.Ino, row.Size, row.Allocated = metadata.Ino(sys.Ino), uint64(sys.Size), uint64(sys.Blocks)*512
	return row
}

// fill adds what the daemon knows, if this user may see it.
func (r *statRow) fill(ctx context.Context, c *client.Client) error {
	o, err := c.Object(ctx, r.Ino)
	switch {
	case client.IsForbidden(err):
		return nil
	case client.IsNotFound(err):
		// It is a file of hmcfs itself, such as .hmcfs/stats.
		r.ExtentsKnown = true
		return nil
	case err != nil:
		return err
	}
	r.Object, r.ExtentsKnown = o, true
	return nil
}

// typeOf returns the type of a file for the output.
func typeOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	}
	return "special"
}

// mountOfDev finds the mount that contains a file by its device number, which also works
// through symbolic links and bind mounts.
func mountOfDev(file string, dev uint64) (place.Mount, error) {
	all, err := place.Mounts()
	if err != nil {
		return place.Mount{}, err
	}
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for _, m := range all {
		if m.Dev == want && m.IsHMCFS() {
			return m, nil
		}
	}
	return place.Mount{}, notMounted("%s is not on an hmcfs mount", file)
}

// objectFromXattrs returns what any user who may read the file can know about it.
func objectFromXattrs(xattr func(string) string) adminapi.Object {
	get := func(name string) string { return xattr("user.hmc." + name) }
	o := adminapi.Object{
		Device: metadata.DeviceName(get("device")), State: get("state"), Dtype: get("dtype"), Shape: get("shape"),
		Blobs: get("blobs"), Key: get("key"), LastPath: get("path"), Extents: []adminapi.Extent{},
	}
	o.Resident, _ = strconv.ParseUint(get("resident"), 10, 64)
	return o
}

// The attributes of files.
const (
	blobsXattr    = "user.hmc.blobs"
	deviceXattr   = "user.hmc.device"
	dtypeXattr    = "user.hmc.dtype"
	keyXattr      = "user.hmc.key"
	pathXattr     = "user.hmc.path"
	residentXattr = "user.hmc.resident"
	shapeXattr    = "user.hmc.shape"
	stateXattr    = "user.hmc.state"
	ttlXattr      = "user.hmc.ttl"
)

// xattr returns an extended attribute; "" if it does not exist.
func xattr(file, name string) string {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getxattr(file, name, buf)
		switch {
		case errors.Is(err, unix.ERANGE) && len(buf) < metadata.MaxXattr:
			buf = make([]byte, metadata.MaxXattr)
		case err != nil:
			return ""
		default:
			return strings.TrimRight(string(buf[:n]), "\x00\n")
		}
	}
}

func printStat(w io.Writer, r statRow) error {
	field(w, "file", r.File)
	fieldIf(w, "path", r.Path)
	if r.Type != "file" {
		field(w, "type", r.Type)
		fieldIf(w, "device", string(r.Device))
		return nil
	}
	field(w, "size", fmt.Sprintf("%d (%v)", r.Size, devices.Size(r.Size)))
	field(w, "allocated", fmt.Sprintf("%d (%v)", r.Allocated, devices.Size(r.Allocated)))
	fieldIf(w, "device", string(r.Device))
	fieldIf(w, "state", r.State)
	fieldIf(w, "dtype", r.Dtype)
	fieldIf(w, "shape", r.Shape)
	fieldIf(w, "blobs", r.Blobs)
	fieldIf(w, "key", r.Key)
	fieldIf(w, "last transfer", r.LastPath)
	if r.Exported > 0 {
		field(w, "exported", fmt.Sprintf("%d (%v) as %s", r.Exported, devices.Size(r.Exported), r.ExportKind))
	}
	switch {
	case !r.ExtentsKnown:
		field(w, "extents", "shown only to root and the user who mounted")
		return nil
	case len(r.Extents) == 0:
		field(w, "extents", "none")
		return nil
	}
	field(w, "extents", len(r.Extents))
	t := newTable(w, "  FILE OFFSET", "LENGTH", "WRITTEN", "ALLOCATION", "OFFSET", "PINNED")
	for _, e := range r.Extents {
		t.row(fmt.Sprintf("  %d", e.FileOff), e.Len, e.Written, e.Allocation, e.Off, e.Pinned)
	}
	return t.Flush()
}
