package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"strings"
)

// colours of the systems in every picture. That of hmcfs is like no other.
func colours() map[string]color.RGBA {
	return map[string]color.RGBA{
		"hmcfs":    {0xd6, 0x27, 0x28, 0xff},
		"tmpfs":    {0x8c, 0x8c, 0x8c, 0xff},
		"vramfs":   {0x8c, 0x56, 0x4b, 0xff},
		"OpenCL":   {0x2c, 0xa0, 0x2c, 0xff},
		"go-fuse":  {0x17, 0xbe, 0xcf, 0xff},
		"iperf3":   {0xbc, 0xbd, 0x22, 0xff},
		"UCX":      {0x1f, 0x77, 0xb4, 0xff},
		"Redis":    {0xe3, 0x77, 0xc2, 0xff},
		"Open MPI": {0x94, 0x67, 0xbd, 0xff},
		"Gloo":     {0xff, 0x9f, 0x1c, 0xff},
	}
}

// systemOf returns the system that a line of a picture belongs to: its name begins with it. Lines
// that name none are hmcfs's.
func systemOf(name string) string {
	for system := range colours() {
		if strings.HasPrefix(name, system) {
			return system
		}
	}
	return "hmcfs"
}

// The measures of the chart, in pixels.
const (
	chartWidth  = 760
	chartLabels = 290 // the width of the labels
	chartBars   = 300 // the longest bar
	chartRow    = 40
	chartTop    = 34
)

// chart draws a pair of bars for each row. The longer one of a pair is the faster; both have
// their figure beside them.
func chart(rows []found) []byte {
	var b bytes.Buffer
	high := chartTop + chartRow*len(rows) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">
<title>hmcfs beside others; the longer bar of a pair is the faster one</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="10" y="20" font-weight="bold">hmcfs beside others: the longer bar of a pair is the faster one</text>
`, chartWidth, high, chartWidth, high)
	for i, f := range rows {
		y := chartTop + i*chartRow
		mine, theirs := 1.0, 1/f.times
		if f.times < 1 {
			mine, theirs = f.times, 1
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", chartLabels-10, y+21, html.EscapeString(f.what))
		bar(&b, y+3, mine, "hmcfs", f.mine)
		bar(&b, y+18, theirs, f.system, f.theirs)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// bar draws one bar, with its system and its figure.
func bar(b *bytes.Buffer, y int, part float64, system, figure string) {
	c := colours()[system]
	long := max(1, part*chartBars)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="13" fill="#%02x%02x%02x"/>`+"\n", chartLabels, y, long, c.R, c.G, c.B)
	fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="11">%s %s</text>`+"\n", chartLabels+long+6, y+11, html.EscapeString(system), html.EscapeString(figure))
}
