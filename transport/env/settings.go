package env

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/job"
)

// Setting is one knob, with its value and the source of it.
type Setting struct {
	Knob
	// Value is the text; the default if none was set.
	Value string
	// Source is "environment HMCFS_ALGO", "group dp" or "default".
	Source string
}

// Given reports whether the value was set explicitly.
func (s *Setting) Given() bool { return s.Source != byDefault }

const byDefault = "default"

// Settings holds all knobs.
type Settings struct {
	List   []Setting
	values values
}

// values holds the parsed values. Values that were not set are zero.
type values struct {
	buffer       devices.Size
	algorithm    plan.Algorithm
	algorithms   map[plan.Kind]plan.Algorithm
	strict       bool
	mapped       string
	streams      string
	connect      time.Duration
	timeout      time.Duration
	retryOn      string
	retries      int
	check        collective.Check
	stuck        time.Duration
	keepSource   bool
	logCalls     bool
	fusionBytes  devices.Size
	fusionWindow time.Duration
	fusionSpares int
}

// Parse reads the environment through a function such as os.Getenv. The error
// contains every fault, each as an InvalidError.
func Parse(getenv func(string) string) (*Settings, error) {
	s := &Settings{}
	var faults []error
	for _, k := range Knobs() {
		s.List = append(s.List, Setting{Knob: k, Value: k.Default, Source: byDefault})
		for _, name := range []string{k.Name, k.Alias} {
			if text := getenv(name); text != "" {
				faults = append(faults, s.set(len(s.List)-1, text, "environment "+name, name))
				break
			}
		}
	}
	faults = append(faults, s.agree())
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// With overrides the environment by the settings of one group. Keys are our names
// without HMCFS_, in lower case: "algo". source describes the origin of the
// settings.
func (s *Settings) With(source string, given map[string]string) (*Settings, error) {
	c := &Settings{List: slices.Clone(s.List), values: s.values}
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(c.List, func(x Setting) bool { return x.Key() == key })
		if i < 0 {
			faults = append(faults, fmt.Errorf("%w: %s: unknown setting %.80q", ErrValue, source, key))
			continue
		}
		if err := c.set(i, given[key], source, key); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", source, err))
		}
	}
	faults = append(faults, c.agree())
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Settings) set(i int, text, source, name string) error {
	k := &s.List[i]
	foreign := name == k.Alias
	if !k.read(&s.values, text, foreign) {
		return &InvalidError{Variable: name, Value: text, Expected: k.Expected}
	}
	k.Value, k.Source = text, source
	return nil
}

// agree finds values that are valid individually, but not together.
func (s *Settings) agree() error {
	v := &s.values
	switch {
	case v.mapped == "1" && v.streams == "1":
		return &InvalidError{
			Variable: s.source(shmName), Value: "1",
			Expected: "0 where " + s.source(netName) + " is 1: ranks of one host use either shared memory or the network",
		}
	case v.mapped == "0" && v.streams == "", v.mapped == "" && v.streams == "0":
		name, other := shmName, netName
		if v.mapped == "" {
			name, other = netName, shmName
		}
		return &InvalidError{Variable: s.source(name), Value: "0", Expected: "0 only if " + other + " is set too"}
	}
	return nil
}

// source returns the name under which a knob was set.
func (s *Settings) source(name string) string {
	for i := range s.List {
		if s.List[i].Name == name {
			return strings.TrimPrefix(s.List[i].Source, "environment ")
		}
	}
	return name
}

// Warnings lists the settings that have no effect here, or not the intended one.
func (s *Settings) Warnings() []string {
	var all []string
	for i := range s.List {
		if x := &s.List[i]; x.Given() && x.Ignored != "" {
			all = append(all, fmt.Sprintf("%s (%s) is ignored: %s", x.Name, x.Source, x.Ignored))
		}
	}
	if s.values.mapped == "0" && s.values.streams == "0" {
		all = append(all, shmName+" and "+netName+" are both 0: ranks of one host use shared memory")
	}
	return all
}

// Options fills in the fields that a program has left unset for a group.
func (s *Settings) Options(o collective.Options) collective.Options {
	v := &s.values
	if o.Algorithm == "" && len(o.Algorithms) == 0 {
		o.Algorithm, o.Algorithms = v.algorithm, v.algorithms
	}
	o.Strict = o.Strict || v.strict
	o.KeepSource = o.KeepSource || v.keepSource
	o.Check = cmp.Or(o.Check, v.check)
	o.Buffer = cmp.Or(o.Buffer, v.buffer)
	o.Timeout = cmp.Or(o.Timeout, v.timeout)
	o.Stuck = cmp.Or(o.Stuck, v.stuck)
	switch {
	case o.Retry != 0 || v.retryOn == "" && v.retries == 0:
	case v.retryOn == "0":
		o.Retry = -1
	default:
		o.Retry = max(v.retries, 1)
	}
	if v.logCalls && o.Logger != nil {
		o.Observe = logged(o.Logger, o.Observe)
	}
	return o
}

// Algorithm returns the algorithm that is set for a kind of call; empty means the
// fastest.
func (s *Settings) Algorithm(k plan.Kind) plan.Algorithm {
	if a, own := s.values.algorithms[k]; own {
		return a
	}
	return s.values.algorithm
}

// Strict reports whether elements must be combined in the order of the ranks.
func (s *Settings) Strict() bool { return s.values.strict }

// logged returns an observer that logs each call, and then calls next.
func logged(l *zap.Logger, next func(*collective.Report)) func(*collective.Report) {
	return func(r *collective.Report) {
		l.Info("collective done", zap.Stringer("kind", r.Task.Kind), zap.Uint64("elements", r.Task.Count),
			zap.Stringer("type", r.Task.Type), zap.String("algorithm", string(r.Algorithm)), zap.String("because", r.Because),
			zap.String("path", r.Path), zap.Duration("predicted", r.Predicted), zap.Duration("measured", r.Measured),
			zap.Int("retries", r.Retries))
		if next != nil {
			next(r)
		}
	}
}

// Fabric fills in the fields that a program has left unset for a fabric.
func (s *Settings) Fabric(o fabric.Options) fabric.Options {
	o.Timeout = cmp.Or(o.Timeout, s.values.connect)
	o.Streams = o.Streams || s.values.streams == "1"
	return o
}

// Job fills in the fields that are left to the environment of a job.
func (s *Settings) Job(o job.Options) job.Options {
	o.Timeout = cmp.Or(o.Timeout, s.values.connect)
	if s.values.streams == "1" && (o.Backend == "" || o.Backend == job.Auto) {
		o.Backend = job.TCP
	}
	return o
}

// Fusion fills in the fields that a program has left unset for fusion.
func (s *Settings) Fusion(o fusion.Options) fusion.Options {
	o.Bytes = cmp.Or(o.Bytes, s.values.fusionBytes)
	o.Window = cmp.Or(o.Window, s.values.fusionWindow)
	o.Buffers = cmp.Or(o.Buffers, s.values.fusionSpares)
	return o
}
