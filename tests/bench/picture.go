package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
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
	// Below the lines, which rise to the right.
	pic.Legend.Top, pic.Legend.Left = false, true
	pic.Legend.XOffs, pic.Legend.YOffs = 13*vg.Centimeter, vg.Centimeter/4
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
	var svg strings.Builder
	if _, err := to.WriteTo(&svg); err != nil {
		return err
	}
	// A browser without the font takes one of its width.
	_, err := io.WriteString(w, strings.ReplaceAll(svg.String(), "Liberation Serif", "Liberation Serif, Times New Roman, Times, serif"))
	return err
}

// style holds the look of a line.
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

// sizeTicks labels the sizes of the lines, but for those whose label would touch the one before.
func sizeTicks(lines map[string]plotter.XYs) plot.ConstantTicks {
	var sizes []float64
	for _, points := range lines {
		for _, p := range points {
			sizes = append(sizes, p.X)
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	var ticks plot.ConstantTicks
	apart := math.Log(sizes[len(sizes)-1]/sizes[0]) / 11
	last := math.Inf(-1)
	for _, size := range sizes {
		at := plot.Tick{Value: size}
		if math.Log(size)-last >= apart {
			at.Label, last = short(devices.Size(size)), math.Log(size)
		}
		ticks = append(ticks, at)
	}
	return ticks
}

// short formats a size without zeros after the decimal point.
func short(n devices.Size) string { return strings.Replace(n.String(), ".0 ", " ", 1) }
