package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a *app) dfVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "df [--json] [MOUNTPOINT]",
		Short: "Show how much of each device is used, and by what",
		Long: "Show the size of each device, how much of it is used and free, and what uses it: objects with a key\n" +
			"(KEYS is their number, and BY KEYS their bytes) and, for root and the user who mounted, the number of files\n" +
			"with content (OBJECTS), those whose memory another process owns (BOUND), and host memory set aside without a\n" +
			"record (ASIDE; see hmcfs fsck).",
		Args: arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	t := &trees{app: a, sessions: map[string]*sessionTree{}}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		t.mount = strings.Join(args, "")
		s, _, err := t.find(ctx, hmcPrefix)
		if err != nil {
			return err
		}
		rows, err := devicesOf(s)
		if err == nil {
			err = addKeys(ctx, s, rows)
		}
		if err == nil {
			err = addCounts(ctx, s, rows)
		}
		if err != nil {
			return err
		}
		return answer(a.Stdout, *asJSON, rows, printDf)
	})
}

// deviceUse is one device of `hmcfs ls --json` and `hmcfs df --json`; ls has less of it.
type deviceUse struct {
	Device string `json:"device"`
	// Path is the directory's, below hmc:, and Type directory.
	Path string       `json:"path"`
	Type string       `json:"type"`
	Size devices.Size `json:"size"`
	Used devices.Size `json:"used"`
	Free devices.Size `json:"free"`
	// Keys is the number of objects with a key, and KeyBytes their size.
	Keys     int          `json:"keys,omitempty"`
	KeyBytes devices.Size `json:"key_bytes,omitempty"`
	// Objects, Bound, Lost and Aside are as of `hmcfs status`; nil if this user may not see them.
	Objects   *int         `json:"objects,omitempty"`
	Bound     *int         `json:"bound,omitempty"`
	Lost      *int         `json:"lost,omitempty"`
	AsideUsed devices.Size `json:"aside_used,omitempty"`
	// shown is the directory as people write it.
	shown string
}

// devicesOf returns the use of each device, as every user may see it.
func devicesOf(s *sessionTree) ([]deviceUse, error) {
	entries, err := s.ReadDir(".")
	if err != nil {
		return nil, err
	}
	rows := []deviceUse{}
	for _, e := range entries {
		if !e.IsDir() || isOwnDir(e.Name()) {
			continue
		}
		u, err := s.StatFS(e.Name())
		if err != nil {
			return nil, err
		}
		row := deviceUse{Device: e.Name(), Path: e.Name(), Type: "directory", Size: u.Total, Used: u.Used, Free: u.Free, shown: hmcPrefix + e.Name()}
		if !s.mount.IsServed() {
			row.shown = path.Join(s.mount.MountPoint, e.Name())
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// addKeys adds the objects with a key. Those of other nodes are on none of the devices.
func addKeys(ctx context.Context, s *sessionTree, rows []deviceUse) error {
	entries, err := s.ReadDir(keysDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(keysDir, e.Name())
		target, err := s.ReadLink(name)
		if err != nil {
			continue // it was removed meanwhile
		}
		device, _, _ := strings.Cut(strings.TrimPrefix(target, "../"), "/")
		at := slices.IndexFunc(rows, func(r deviceUse) bool { return r.Device == device })
		if at < 0 {
			continue
		}
		info, err := s.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		rows[at].Keys++
		rows[at].KeyBytes += devices.Size(info.Size())
	}
	return nil
}

// addCounts adds what the daemon tells only root and the user who mounted.
func addCounts(ctx context.Context, s *sessionTree, rows []deviceUse) error {
	st, err := s.client.Status(ctx, true)
	if client.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range rows {
		at := slices.IndexFunc(st.Devices, func(d adminapi.Device) bool { return string(d.Name) == rows[i].Device })
		if at >= 0 {
			d := st.Devices[at]
			rows[i].Objects, rows[i].Bound, rows[i].Lost, rows[i].AsideUsed = d.Objects, d.Bound, d.Lost, d.AsideUsed
		}
	}
	return nil
}

func printDf(w io.Writer, rows []deviceUse) error {
	t := newTable(w, "DEVICE", "SIZE", "USED", "FREE", "USE%", "KEYS", "BY KEYS", "OBJECTS", "BOUND", "LOST", "ASIDE", "PATH")
	for _, r := range rows {
		percent := 0.0
		if r.Size > 0 {
			percent = 100 * float64(r.Used) / float64(r.Size)
		}
		t.row(r.Device, r.Size, r.Used, r.Free, fmt.Sprintf("%.0f%%", percent), r.Keys, r.KeyBytes,
			optional(r.Objects), optional(r.Bound), optional(r.Lost), r.AsideUsed, r.shown)
	}
	return t.Flush()
}
