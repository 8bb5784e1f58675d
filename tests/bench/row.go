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

// row is one line of the table: hmcfs compared with others.
type row struct {
	name string
	unit string
	// sides are measured in alternation; hmcfs is the first. Rows that are measured
	// differently have a custom function instead.
	sides  []side
	custom func(ctx context.Context, rounds int) (result, error)
	// wants are the targets.
	wants []want
	// notes describe how the row is measured.
	notes []string
	// after removes what the sides left.
	after func() error
}

// side is one measured side.
type side = bench.Probe

// want is a target: a lower or upper bound of a side's ratio to another side or, if that is
// empty, of the side's own value.
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
	// load is the load of the machine at the end.
	load string
}

// matches reports whether the row is selected.
func (r row) matches(text string) bool { return strings.Contains(r.name, text) }

// measure measures the row and compares it with its targets.
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

// inTurns measures sides in alternation.
func inTurns(ctx context.Context, rounds int, sides []side) (res result, err error) {
	all, err := bench.Interleave(ctx, rounds, sides)
	for i := range all {
		res.figures = append(res.figures, figure{sides[i].Name, all[i]})
	}
	return res, err
}

// together returns two figures of one measurement.
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

// series returns a side's values.
func (r *result) series(name string) bench.Series {
	for _, f := range r.figures {
		if f.name == name {
			return f.series
		}
	}
	return nil
}

// judge compares the result with a target.
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
