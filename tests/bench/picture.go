package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
)

// picture measures bandwidth by size on each available path to the peer, and draws it.
func (p *peers) picture(ctx context.Context, progress io.Writer) error {
	var all perf.Report
	for _, way := range []struct {
		*spot
		transport string
	}{{p.lo, "tcp"}, {p.lo.unix(), "tcp"}, {p.lo.unix(), "shm"}, {p.ucx["posix,cma"], "ucx"}} {
		fmt.Fprintln(progress, "bench: picture,", way.transport, "at", way.at[0])
		r, err := p.perf(ctx, way.spot, way.at[0], "--transport", way.transport, "--operation", "put", "--operation", "get",
			"--rounds", "1", "--sizes", p.opts.sizes)
		if err != nil {
			return fmt.Errorf("picture: %w", err)
		}
		all.Rows = append(all.Rows, r.Rows...)
	}
	return drawTo(p.opts.picture, func(w io.Writer) error { return draw(&all, w) })
}

// drawTo creates a picture.
func drawTo(path string, draw func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	return errors.Join(draw(f), f.Close())
}

// draw writes a picture of the bandwidth rows of reports of hmcfs perf run: a line for each
// path and operation.
func draw(r *perf.Report, w io.Writer) error {
	lines := map[string]plotter.XYs{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Mode != "bandwidth" {
			continue
		}
		name := row.Way() + " " + row.Operation
		lines[name] = append(lines[name], plotter.XY{X: float64(row.Bytes), Y: row.GBs})
	}
	return drawLines("hmcfs perf: bandwidth by size, host memory, two processes", lines, w)
}

// drawLines writes a picture of bandwidths by size.
func drawLines(title string, lines map[string]plotter.XYs, w io.Writer) error {
	if len(lines) == 0 {
		return errors.New("there is nothing to draw")
	}
	pic := plot.New()
	pic.Title.Text = title
	pic.X.Label.Text, pic.Y.Label.Text = "size, bytes", "GB/s (1e9 bytes)"
	pic.X.Scale, pic.Y.Scale = plot.LogScale{}, plot.LogScale{}
	pic.X.Tick.Marker, pic.Y.Tick.Marker = sizeTicks(lines), plot.LogTicks{Prec: -1}
	pic.Legend.Top, pic.Legend.Left = true, true
	pic.Add(plotter.NewGrid())
	styles := styles(slices.Sorted(maps.Keys(lines)))
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		line, points, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		style := styles[name]
		line.Color, points.Color = style.colour, style.colour
		line.Width, points.Shape = vg.Points(style.width), plotutil.Shape(style.variant)
		line.Dashes = plotutil.Dashes(style.variant)
		pic.Add(line, points)
		pic.Legend.Add(name, line, points)
	}
	to := vgsvg.NewWith(vgsvg.UseWH(20*vg.Centimeter, 13*vg.Centimeter))
	// Half of the last label of the axis is beyond it.
	pic.Draw(plotdraw.Crop(plotdraw.New(to), vg.Centimeter/4, -vg.Centimeter, vg.Centimeter/4, -vg.Centimeter/4))
	_, err := to.WriteTo(w)
	return err
}

// style is how a line is drawn.
type style struct {
	colour  color.Color
	width   float64
	variant int // dashes and points
}

// styles gives each system its colour, and the lines of one system their dashes and points. In a
// picture of hmcfs alone, each path has a colour: the last word of a name is the operation.
func styles(names []string) map[string]style {
	alone := !slices.ContainsFunc(names, func(name string) bool { return systemOf(name) != "hmcfs" })
	variants, paths := map[string]int{}, map[string]int{}
	out := map[string]style{}
	for _, name := range names {
		group := systemOf(name)
		s := style{colour: colours()[group], width: 1.5}
		if alone {
			group = name[:max(0, strings.LastIndex(name, " "))]
			if _, ok := paths[group]; !ok {
				paths[group] = len(paths)
			}
			s.colour = plotutil.Color(paths[group])
		} else if group == "hmcfs" {
			s.width = 3
		}
		s.variant = variants[group]
		variants[group]++
		out[name] = s
	}
	return out
}

// sizeTicks labels the sizes of the lines.
func sizeTicks(lines map[string]plotter.XYs) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, points := range lines {
		for _, p := range points {
			at := plot.Tick{Value: p.X, Label: short(devices.Size(p.X))}
			if !slices.Contains(ticks, at) {
				ticks = append(ticks, at)
			}
		}
	}
	return ticks
}

// short formats a size without zeros after the decimal point.
func short(n devices.Size) string { return strings.Replace(n.String(), ".0 ", " ", 1) }
