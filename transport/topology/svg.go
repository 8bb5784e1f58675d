package topology

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// maxPicture is the maximum number of devices in a picture.
const maxPicture = 256

// The dimensions of a picture, in pixels.
const (
	boxWide  = 132
	boxHigh  = 44
	gapWide  = 36
	gapHigh  = 70
	margin   = 28
	labelled = 40 // links, above which they have no labels
)

// SVG draws the graph: a frame for each machine, in it the cards above their
// nodes, links coloured by class, as wide as they are fast, and dashed if that is
// assumed.
//
// Errors: ErrFile for more devices than fit a picture; the writer's.
func (g *Graph) SVG(w io.Writer) error {
	if len(g.Devices) > maxPicture {
		return fault("devices", "too many devices for a picture: %d; the limit is %d", len(g.Devices), maxPicture)
	}
	p := &picture{g: g, at: map[ID]point{}}
	p.layOut()
	p.draw()
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

type point struct{ x, y float64 }

// frame is drawn around the devices of a machine.
type frame struct {
	name                     string
	left, right, top, bottom float64
}

// picture is an SVG under construction.
type picture struct {
	strings.Builder
	g          *Graph
	at         map[ID]point
	frames     []frame
	wide, high float64
}

// style is the row of a kind in its machine, from the top, and the colour of its boxes.
type style struct {
	row  int
	fill string
}

//nolint:gochecknoglobals // a table that never changes
var styles = map[Kind]style{
	Accelerator: {0, "#e8f5e9"},
	Switch:      {1, "#e3f2fd"},
	NUMANode:    {2, "#efebe9"},
	Host:        {3, "#e0f7fa"},
	NIC:         {3, "#fff3e0"},
}

// lined is the number of devices side by side after which the next machine goes
// below.
const lined = 16

// machine holds the rows of devices of one machine.
type machine struct {
	name string
	rows [4][]*Device
}

func (m *machine) widest() int {
	return max(len(m.rows[0]), len(m.rows[1]), len(m.rows[2]), len(m.rows[3]))
}

// layOut assigns each device its place: machines side by side, and devices
// without a machine, such as the network, at the bottom.
func (p *picture) layOut() {
	all, rest := p.machines()
	x, y, low := float64(margin), float64(margin), float64(0)
	p.wide = 420
	for n, i := 0, 0; i < len(all); i++ {
		m := all[i]
		if n > 0 && n+m.widest() > lined {
			x, y, n = margin, low+margin, 0
		}
		n += m.widest()
		wide := float64(m.widest()) * (boxWide + gapWide)
		f := frame{name: m.name, left: x, right: x + wide, top: y}
		f.bottom = p.placeRows(m, f)
		p.frames = append(p.frames, f)
		x += wide + margin
		low = max(low, f.bottom)
		p.wide = max(p.wide, x)
	}
	y = low + margin
	if rest != nil {
		y = p.placeRows(rest, frame{left: margin, right: p.wide - margin, top: y})
	}
	p.high = y
}

// machines groups the devices by machine and row.
func (p *picture) machines() (all []*machine, rest *machine) {
	for i := range p.g.Devices {
		d := &p.g.Devices[i]
		var m *machine
		if d.Server == "" && d.Kind == Switch && d.PCI == "" {
			if rest == nil {
				rest = &machine{}
			}
			m = rest
		} else if at := slices.IndexFunc(all, func(m *machine) bool { return m.name == d.Server }); at >= 0 {
			m = all[at]
		} else {
			m = &machine{name: d.Server}
			all = append(all, m)
		}
		row := styles[d.Kind].row
		m.rows[row] = append(m.rows[row], d)
	}
	slices.SortStableFunc(all, func(a, b *machine) int { return compareIDs(ID(a.name), ID(b.name)) })
	return all, rest
}

// placeRows places a machine in its frame, and returns the bottom of the frame.
func (p *picture) placeRows(m *machine, f frame) (bottom float64) {
	y := f.top + margin + p.arcs(m.rows[0])
	for _, row := range m.rows {
		if len(row) > 0 {
			p.placeRow(row, f, y)
			y += boxHigh + gapHigh
		}
	}
	return y - gapHigh + margin
}

// arcs returns the space that the links inside a row of cards need above it.
func (p *picture) arcs(row []*Device) float64 {
	names := map[ID]int{}
	for i, d := range row {
		names[d.ID] = i
	}
	room := 0.0
	for i := range p.g.Links {
		a, isA := names[p.g.Links[i].A]
		b, isB := names[p.g.Links[i].B]
		if isA && isB {
			room = max(room, arcHeight(float64(a-b)*(boxWide+gapWide)))
		}
	}
	return room
}

// arcHeight returns the height above a row of a link between two of its devices.
func arcHeight(distance float64) float64 { return 14 + math.Abs(distance)/7 }

func (p *picture) placeRow(row []*Device, f frame, y float64) {
	slices.SortStableFunc(row, func(a, b *Device) int { return cmp.Or(a.NUMA-b.NUMA, compareIDs(a.ID, b.ID)) })
	step := (f.right - f.left) / float64(len(row))
	for i, d := range row {
		p.at[d.ID] = point{x: f.left + (float64(i)+0.5)*step, y: y + boxHigh/2}
	}
}

func (p *picture) draw() {
	used := map[Class]bool{}
	for i := range p.g.Links {
		used[p.g.Links[i].Class] = true
	}
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n",
		p.wide, p.high+40, p.wide, p.high+40)
	fmt.Fprintf(p, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for _, f := range p.frames {
		fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="8" fill="none" stroke="#9e9e9e"/>`+"\n",
			f.left, f.top, f.right-f.left, f.bottom-f.top)
		fmt.Fprintf(p, `<text x="%.1f" y="%.1f" fill="#616161">%s</text>`+"\n", f.left+10, f.top+16, html.EscapeString(f.name))
	}
	for i := range p.g.Links {
		p.link(&p.g.Links[i])
	}
	for i := range p.g.Devices {
		p.box(&p.g.Devices[i])
	}
	x := float64(margin)
	for _, c := range classes {
		if used[c.class] {
			fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="14" height="4" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
				x, p.high+8, c.colour, x+20, p.high+14, c.class)
			x += 34 + float64(len(c.class))*8
		}
	}
	fmt.Fprintf(p, `<text x="%d" y="%.1f" fill="#616161">GB/s; dashed: assumed</text>`+"\n</svg>\n", margin, p.high+32)
}

// link draws a link, with a title that describes it.
func (p *picture) link(l *Link) {
	a, b := p.at[l.A], p.at[l.B]
	dash := ""
	if l.Assumed {
		dash = ` stroke-dasharray="6 4"`
	}
	colour := classes[l.Class.order()].colour
	wide := min(max(1, 1.2*math.Log2(1+l.Bandwidth)/2), 7)
	path := fmt.Sprintf("M%.1f %.1f L%.1f %.1f", a.x, a.y, b.x, b.y)
	middle := point{x: (a.x + b.x) / 2, y: (a.y + b.y) / 2}
	if a.y == b.y && a.x != b.x {
		rise := arcHeight(a.x - b.x)
		if styles[p.g.Devices[p.g.index[l.A]].Kind].row > 0 { // others are directly above it
			rise = min(rise, gapHigh/3)
		}
		top := a.y - boxHigh/2
		path = fmt.Sprintf("M%.1f %.1f Q%.1f %.1f %.1f %.1f", a.x, top, middle.x, top-2*rise, b.x, top)
		middle.y = top - rise
	}
	fmt.Fprintf(p, `<path d="%s" fill="none" stroke="%s" stroke-width="%.1f"%s><title>%s</title></path>`+"\n",
		path, colour, wide, dash, html.EscapeString(linkTitle(l)))
	if len(p.g.Links) <= labelled {
		fmt.Fprintf(p, `<text x="%.1f" y="%.1f" font-size="10" fill="%s" text-anchor="middle" stroke="white" stroke-width="3" paint-order="stroke">%.3g</text>`+"\n",
			middle.x, middle.y+3, colour, l.Bandwidth)
	}
}

func linkTitle(l *Link) string {
	text := fmt.Sprintf("%s – %s: %s, %.4g GB/s, %.4g µs", l.A, l.B, l.Class, l.Bandwidth, l.Latency)
	if l.Transport != "" {
		text += ", " + l.Transport
	}
	if l.Assumed {
		text += ", assumed"
	}
	return text
}

// maxLine is the number of characters that fit in a box.
const maxLine = 21

func (p *picture) box(d *Device) {
	c := p.at[d.ID]
	fmt.Fprintf(p, `<g><title>%s</title><rect x="%.1f" y="%.1f" width="%d" height="%d" rx="5" fill="%s" stroke="#424242"/>`,
		html.EscapeString(strings.Join(append([]string{string(d.ID), d.Model, d.PCI}, d.Net...), " ")),
		c.x-boxWide/2, c.y-boxHigh/2, boxWide, boxHigh, styles[d.Kind].fill)
	second := d.Model
	switch {
	case d.Rank != nil:
		second = fmt.Sprintf("rank %d", *d.Rank)
	case second == "" && len(d.Net) > 0:
		second = d.Net[0]
	case second == "":
		second = d.PCI
	}
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="middle" font-weight="bold">%s</text>`, c.x, c.y-3, html.EscapeString(shortened(string(d.ID))))
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="9.5" fill="#616161">%s</text></g>`+"\n", c.x, c.y+13, html.EscapeString(shortened(second)))
}

func shortened(text string) string {
	if r := []rune(text); len(r) > maxLine {
		return string(r[:maxLine-1]) + "…"
	}
	return text
}
