package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
)

// The units of figures.
const (
	gigabytes = "GB/s"
	perSecond = "/s"
	seconds   = "s"
	micros    = "µs"
	mebibytes = "MiB"
	byteUnit  = "B"
	factor    = "x"
)

// row is one line of the table: what hmcfs does beside others.
type row struct {
	name string
	unit string
	// sides are measured in turns; hmcfs is the first. Rows that measure in
	// their own way have a custom function instead.
	sides  []side
	custom func(ctx context.Context, rounds int) (result, error)
	// wants are the targets.
	wants []want
	// notes say how it is measured.
	notes []string
	// after takes away what the sides left.
	after func() error
}

// side is one thing that is measured.
type side = bench.Probe

// want is a target: a side's ratio to another one, or, where that is empty, a
// side's own value, in both cases at least or at most so much.
type want struct {
	of, against string
	bound       float64
	atMost      bool
}

// figure is the result of one side.
type figure struct {
	name   string
	series bench.Series
}

// verdict is the outcome for a target.
type verdict struct {
	text    string // "ocl0 / tmpfs"
	bound   string // "≥ 0.50"
	reached float64
	ok      bool
}

// result is a measured row.
type result struct {
	name, unit string
	figures    []figure
	verdicts   []verdict
	notes      []string
	// load is that of the machine at the end.
	load string
}

// matches says whether the row was asked for.
func (r row) matches(text string) bool { return strings.Contains(r.name, text) }

// measure measures the row and judges it.
func (r row) measure(ctx context.Context, rounds int) (res result, err error) {
	if r.after != nil {
		defer func() {
			if failed := r.after(); err == nil {
				err = failed
			}
		}()
	}
	if r.custom != nil {
		res, err = r.custom(ctx, rounds)
	} else {
		res, err = inTurns(ctx, rounds, r.sides)
	}
	if err != nil {
		return result{}, err
	}
	res.name, res.unit = r.name, r.unit
	res.notes = append(res.notes, r.notes...)
	for _, w := range r.wants {
		res.verdicts = append(res.verdicts, res.judge(w))
	}
	return res, nil
}

// inTurns measures sides in turns.
func inTurns(ctx context.Context, rounds int, sides []side) (res result, err error) {
	all, err := bench.Interleave(ctx, rounds, sides)
	for i := range all {
		res.figures = append(res.figures, figure{sides[i].Name, all[i]})
	}
	return res, err
}

// together is two figures that one measurement has.
func together(ctx context.Context, rounds int, first, second string,
	run func(ctx context.Context) (float64, float64, error),
) (result, error) {
	var a, b bench.Series
	for range rounds {
		x, y, err := run(ctx)
		if err != nil {
			return result{}, err
		}
		a, b = append(a, x), append(b, y)
	}
	return result{figures: []figure{{first, a}, {second, b}}}, nil
}

// series finds a side's values.
func (r *result) series(name string) bench.Series {
	for _, f := range r.figures {
		if f.name == name {
			return f.series
		}
	}
	return nil
}

// judge compares a target with what was reached.
func (r *result) judge(w want) verdict {
	v := verdict{text: w.of, bound: fmt.Sprintf("≥ %.2f", w.bound)}
	if w.against != "" {
		v.text += " / " + w.against
		v.reached = r.series(w.of).Over(r.series(w.against)).Median()
	} else {
		v.reached = r.series(w.of).Median()
	}
	v.ok = v.reached >= w.bound
	if w.atMost {
		v.bound = fmt.Sprintf("< %g", w.bound)
		v.ok = v.reached < w.bound && len(r.series(w.of)) > 0
	}
	if r.unit == micros && w.against == "" {
		v.bound, v.reached = "< "+value(w.bound, micros), v.reached*1e6
	}
	return v
}
