package runner

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// The bounds and defaults of a job.
const (
	// MaxRanks is the number of ranks in a CommContext.
	MaxRanks = 64
	// DefaultRanks is the number of ranks if none is specified.
	DefaultRanks = 8
	// DefaultWindow is the size of windows. Only written pages use memory.
	DefaultWindow = devices.Size(16 << 20)
	// DefaultGrace is the time that a rank has to end after SIGTERM.
	DefaultGrace = 5 * time.Second
	// maxWindow is the maximum size, in bytes, of a window and of a buffer.
	maxWindow = 1 << 40
	// DefaultTolerance is the default of both tolerances of verification.
	DefaultTolerance = 1e-5
)

// Words in Config.Args that are not buffers.
const (
	argRanks   = "nranks"
	argRoot    = "root"
	argContext = "deviceCtx"
)

// The values of Config.Verify.
const (
	verifyRoot = "root"
	verifyAll  = "all"
)

// placeWindow is the placement of buffers that other ranks can access.
const placeWindow = "window"

// Config is a job's file, with the fields of simpler's DISTRIBUTED_CONFIG followed by our
// own.
type Config struct {
	Ranks         *int     `yaml:"nranks"`
	Root          int      `yaml:"root"`
	WinSyncPrefix uint64   `yaml:"win_sync_prefix"`
	Buffers       []Buffer `yaml:"buffers"`
	// Inputs and Outputs name buffers.
	Inputs  []string `yaml:"inputs"`
	Outputs []string `yaml:"outputs"`
	// Args follow the program's own arguments: nranks, root, deviceCtx, or a buffer.
	Args []string `yaml:"args"`

	// Program is used if the command line has none.
	Program []string          `yaml:"program"`
	Env     map[string]string `yaml:"env"`
	// Timeout bounds the whole run; empty means no limit.
	Timeout string `yaml:"timeout"`
	// Window is the minimum size of a window.
	Window string `yaml:"window"`
	// Generate is the source of the inputs, Golden that of the expected outputs.
	Generate *Source  `yaml:"generate"`
	Golden   *Source  `yaml:"golden"`
	Atol     *float64 `yaml:"atol"`
	Rtol     *float64 `yaml:"rtol"`
	// Verify selects the ranks whose outputs are compared: "root" (the default) or "all".
	Verify string `yaml:"verify"`
}

// Source describes where the values of buffers come from: exactly one field is set.
type Source struct {
	// Command is run once for each rank, in that rank's environment, and writes NAME.bin
	// for each buffer to the directory HMCFS_OUT, which is empty.
	Command []string `yaml:"command"`
	// Files maps buffers to files; {rank} in a path is replaced by the rank.
	Files map[string]string `yaml:"files"`
	// Values maps buffers to formulas of the index i, rank, nranks and root.
	Values map[string]string `yaml:"values"`
}

// Buffer is memory that every rank has.
type Buffer struct {
	Name  string `yaml:"name"`
	DType string `yaml:"dtype"`
	// Count is the number of elements.
	Count uint64 `yaml:"count"`
	// Placement is "window" for a buffer in the window; any other value means private
	// memory of the rank.
	Placement string `yaml:"placement"`

	kind elem.Type
	// off is the offset of a buffer in the window.
	off uint64
}

func (b *Buffer) inWindow() bool { return b.Placement == placeWindow }

func (b *Buffer) size() uint64 { return b.Count * b.kind.Size() }

// Plan is a job that has been checked.
type Plan struct {
	Options

	// config is the job's config, of which Options, Atol and Rtol are the final values.
	config Config
	Atol   float64
	Rtol   float64
	// Declared reports that there was a config.
	Declared bool
}

// ReadConfig reads a job's file: YAML, of which JSON is a subset.
func ReadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c Config
	if err = yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("config %s: %s", path, yaml.FormatError(err, false, false))
	}
	return &c, nil
}

// buffer returns a buffer by its name, or nil.
func (p *Plan) buffer(name string) *Buffer {
	i := slices.IndexFunc(p.config.Buffers, func(b Buffer) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &p.config.Buffers[i]
}

// NewPlan checks the description of a job, and reports all faults at once, joined. Options
// override the config, which may be nil. NewPlan creates nothing.
func NewPlan(o Options, c *Config) (*Plan, error) {
	p := &Plan{Options: o, Atol: DefaultTolerance, Rtol: DefaultTolerance, Declared: c != nil}
	if c != nil {
		p.config = *c
		p.config.Buffers = slices.Clone(c.Buffers)
	}
	p.defaults(&p.config)
	faults := []error{p.settings(&p.config), p.checkBuffers(), p.checkNames()}
	faults = append(faults, p.checkSource("generate", p.config.Generate, p.config.Inputs), p.checkSource("golden", p.config.Golden, p.config.Outputs))
	if p.config.Golden != nil && len(p.config.Outputs) == 0 {
		faults = append(faults, errors.New("golden: there are no outputs to compare"))
	}
	if p.config.Generate == nil && len(p.config.Inputs) > 0 {
		faults = append(faults, fmt.Errorf("inputs %q: there is no generate, which provides their contents", p.config.Inputs))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return p, p.checkWindow()
}

// defaults fills in from the config what the options leave open.
func (p *Plan) defaults(c *Config) {
	switch {
	case p.Ranks == 0 && c.Ranks != nil:
		p.Ranks = *c.Ranks
	case p.Ranks == 0 && len(p.Hosts) > 0:
		p.Ranks = slots(p.Hosts)
	case p.Ranks == 0:
		p.Ranks = DefaultRanks
	}
	if len(p.Program) == 0 {
		p.Program = c.Program
	}
	if c.Atol != nil {
		p.Atol = *c.Atol
	}
	if c.Rtol != nil {
		p.Rtol = *c.Rtol
	}
}

// settings checks everything except buffers.
func (p *Plan) settings(c *Config) error {
	var faults []error
	if p.Ranks < 1 || p.Ranks > MaxRanks {
		faults = append(faults, fmt.Errorf("nranks %d: use 1 to %d", p.Ranks, MaxRanks))
	} else if p.config.Root < 0 || p.config.Root >= p.Ranks {
		faults = append(faults, fmt.Errorf("root %d: use 0 to %d, there are %d ranks", p.config.Root, p.Ranks-1, p.Ranks))
	}
	faults = append(faults, p.checkHosts())
	if len(p.Program) == 0 {
		faults = append(faults, errors.New("no program: name it after --, or in the config"))
	}
	if p.Atol < 0 || p.Rtol < 0 || p.Atol != p.Atol || p.Rtol != p.Rtol {
		faults = append(faults, fmt.Errorf("atol %v, rtol %v: use 0 or more", p.Atol, p.Rtol))
	}
	if !slices.Contains([]string{"", verifyRoot, verifyAll}, c.Verify) {
		faults = append(faults, fmt.Errorf("verify %q: use root or all", c.Verify))
	}
	if p.Timeout == 0 && c.Timeout != "" {
		var err error
		if p.Timeout, err = time.ParseDuration(c.Timeout); err != nil {
			faults = append(faults, fmt.Errorf("timeout %q: use a duration such as 60s", c.Timeout))
		}
	}
	if p.Timeout < 0 || p.Grace < 0 {
		faults = append(faults, fmt.Errorf("timeout %v, grace %v: use 0 or more", p.Timeout, p.Grace))
	}
	if p.Window == 0 && c.Window != "" {
		var err error
		if p.Window, err = devices.ParseSize(c.Window); err != nil {
			faults = append(faults, fmt.Errorf("window: %w", err))
		}
	}
	for _, name := range sortedKeys(c.Env) {
		if name == "" || strings.ContainsAny(name, "=\x00") || reserved(name) {
			faults = append(faults, fmt.Errorf("env %q: not the name of a variable that you can set", name))
		}
	}
	return errors.Join(faults...)
}

// bufferName matches names of buffers, which become parts of file and variable names.
var bufferName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// checkBuffers checks each buffer on its own.
func (p *Plan) checkBuffers() error {
	var faults []error
	seen := map[string]string{}
	for i := range p.config.Buffers {
		b := &p.config.Buffers[i]
		if !bufferName.MatchString(b.Name) || slices.Contains([]string{argRanks, argRoot, argContext}, b.Name) {
			faults = append(faults, fmt.Errorf("buffer %q: a name consists of letters, digits and _, and is not nranks, root or deviceCtx", b.Name))
		}
		if other, double := seen[strings.ToUpper(b.Name)]; double {
			faults = append(faults, fmt.Errorf("buffer %q: its name conflicts with %q", b.Name, other))
		}
		seen[strings.ToUpper(b.Name)] = b.Name
		var err error
		if b.kind, err = parseType(b.DType); err != nil {
			faults = append(faults, fmt.Errorf("buffer %q: %w", b.Name, err))
			continue
		}
		if b.Count < 1 || b.Count > maxWindow/b.kind.Size() {
			faults = append(faults, fmt.Errorf("buffer %q: a count of %d; use 1 to %d", b.Name, b.Count, maxWindow/b.kind.Size()))
		}
	}
	return errors.Join(faults...)
}

// parseType parses a dtype whose values can be generated and compared.
func parseType(text string) (elem.Type, error) {
	all := types()
	if t, ok := all[text]; ok {
		return t, nil
	}
	return 0, fmt.Errorf("dtype %q: use one of %s", text, strings.Join(sortedKeys(all), ", "))
}

// types returns the types of DISTRIBUTED_CONFIG, and bfloat16.
func types() map[string]elem.Type {
	out := map[string]elem.Type{}
	for _, t := range []elem.Type{
		elem.Int8, elem.Uint8, elem.Int16, elem.Uint16, elem.Int32, elem.Uint32, elem.Int64, elem.Uint64,
		elem.Float16, elem.BFloat16, elem.Float32, elem.Float64,
	} {
		out[t.String()] = t
	}
	return out
}

// checkNames checks the lists that name buffers.
func (p *Plan) checkNames() error {
	var faults []error
	for list, names := range map[string][]string{"inputs": p.config.Inputs, "outputs": p.config.Outputs} {
		for i, name := range names {
			switch {
			case p.buffer(name) == nil:
				faults = append(faults, fmt.Errorf("%s: there is no buffer %q", list, name))
			case slices.Contains(names[:i], name):
				faults = append(faults, fmt.Errorf("%s: %q is listed twice", list, name))
			}
		}
	}
	for _, token := range p.config.Args {
		if !slices.Contains([]string{argRanks, argRoot, argContext}, token) && p.buffer(token) == nil {
			faults = append(faults, fmt.Errorf("args: %q is neither a buffer nor nranks, root or deviceCtx", token))
		}
	}
	return errors.Join(faults...)
}

// checkSource checks that a source has one kind of values, for exactly the buffers of a
// list.
func (p *Plan) checkSource(what string, s *Source, names []string) error {
	if s == nil {
		return nil
	}
	kinds := 0
	for _, has := range []bool{len(s.Command) > 0, s.Files != nil, s.Values != nil} {
		if has {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("%s: use one of command, files and values", what)
	}
	if len(s.Command) > 0 {
		return nil
	}
	var faults []error
	given := sortedKeys(s.Files)
	if s.Values != nil {
		given = sortedKeys(s.Values)
	}
	for _, name := range given {
		if !slices.Contains(names, name) {
			faults = append(faults, fmt.Errorf("%s: %q is not among %q", what, name, names))
		}
	}
	for _, name := range names {
		if !slices.Contains(given, name) {
			faults = append(faults, fmt.Errorf("%s: %q is missing", what, name))
		}
	}
	for _, name := range sortedKeys(s.Values) {
		if _, err := parseFormula(s.Values[name]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w", what, name, err))
		}
	}
	return errors.Join(faults...)
}

// checkWindow checks that the buffers fit into the window, in which they follow the prefix in
// the order of their declaration, without gaps. A window without a specified size is made to
// fit.
func (p *Plan) checkWindow() error {
	need := min(p.config.WinSyncPrefix, maxWindow+1)
	for i := range p.config.Buffers {
		if b := &p.config.Buffers[i]; b.inWindow() {
			b.off = need
			need += b.size() // each is at most maxWindow: need exceeds the limit before it can wrap
			if need > maxWindow {
				break
			}
		}
	}
	switch {
	case need > maxWindow || uint64(p.Window) > maxWindow:
		return fmt.Errorf("a window of %v is too large: the limit is %v, including prefix and buffers", devices.Size(max(need, uint64(p.Window))), devices.Size(maxWindow))
	case p.Window != 0 && need > uint64(p.Window):
		return fmt.Errorf("the prefix and the buffers of the window need %d bytes, but the window has %d", need, uint64(p.Window))
	case p.Window == 0 && need > p.config.WinSyncPrefix:
		p.Window = devices.Size(need)
	case p.Window == 0:
		p.Window = max(DefaultWindow, devices.Size(need))
	}
	return nil
}
