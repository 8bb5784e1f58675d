package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress is a bar on a terminal; elsewhere it shows no bar, and only prints the lines of
// say. Its methods are called from one goroutine at a time.
type progress struct {
	to   io.Writer
	name string
	// bars and bar are nil if there is no terminal.
	bars *mpb.Progress
	bar  *mpb.Bar
	// total is the sum of the arguments of grow.
	total int64
}

func (p *progress) begin(total int64) {
	if total > 0 {
		p.draw(total)
	}
}

// grow draws the bar when it is called first, and increases its total: for work that is
// discovered gradually.
func (p *progress) grow(more int64) {
	if p.total += more; p.bar == nil {
		p.draw(0)
	}
	if p.bar != nil {
		p.bar.SetTotal(p.total, false)
	}
}

// draw draws the bar. A total of 0 is set later.
func (p *progress) draw(total int64) {
	f, ok := fileOf(p.to).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	p.bar = p.bars.New(total, mpb.BarStyle(),
		mpb.PrependDecorators(decor.Name(p.name+" ")),
		mpb.AppendDecorators(
			decor.CountersKibiByte("% .1f / % .1f "),
			decor.AverageSpeed(decor.SizeB1024(0), "% .1f "),
			decor.AverageETA(decor.ET_STYLE_GO),
		),
	)
}

func (p *progress) add(n int64) {
	if p.bar != nil {
		p.bar.IncrInt64(n)
	}
}

// say prints a line above the bar.
func (p *progress) say(line string) {
	if p.bars != nil {
		fmt.Fprintln(p.bars, line)
		return
	}
	fmt.Fprintln(p.to, line)
}

// end leaves the bar as it is, full or not.
func (p *progress) end() {
	if p.bar == nil {
		return
	}
	if !p.bar.Completed() {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}
