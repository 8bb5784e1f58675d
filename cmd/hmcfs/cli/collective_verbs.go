package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/filecollect"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/env"
	"github.com/hmcfs/hmcfs/transport/job"
)

// collectFlags are the flags of the collective commands; not every command has all.
type collectFlags struct {
	op, dtype, outDir, algorithm string
	out                          []string
	root                         int
	strict, asJSON               bool
}

// fileVerb is a command whose ranks are files.
type fileVerb struct {
	kind plan.Kind
	name string // of the command
	// short and what are help texts: the purpose, and the effect on each FILE.
	short, what string
}

// collectivesText is the part of the help of the collective commands that is about all of them.
const collectivesText = "The FILEs are the ranks, numbered from 0 in the order given. They must be on one mount, but may be\n" +
	"on any of its devices and on other nodes (nodes/NODE/…). Files on several nodes are combined by\n" +
	"those nodes; only the data that must be exchanged goes over the network.\n\n" +
	"All FILEs must have the same length. On any error no file is changed: results are first written to\n" +
	"separate memory, for which there must be room. With --out or --out-dir, the FILEs are not changed\n" +
	"and the results become new files."

// collectives returns the commands, in the order in which help shows them.
func collectives() []fileVerb {
	return []fileVerb{
		{plan.AllReduce, "allreduce", "Combine files element by element; every file receives the result", "Combine the FILEs element by element; each FILE then holds the result."},
		{plan.Reduce, "reduce", "Combine files element by element into one of them", "Combine the FILEs element by element; the FILE of --root then holds the result."},
		{plan.Broadcast, "broadcast", "Copy the bytes of one file into several", "Each FILE receives the bytes of the one selected by --root. It must exist and be empty or have\nthe same length. With --out, the root is the only FILE, and each --out file is created with its bytes."},
		{plan.AllGather, "allgather", "Concatenate files; every file receives the result", "Concatenate the FILEs in order; each FILE then holds the result, and has grown accordingly."},
		{plan.ReduceScatter, "reduce-scatter", "Combine files element by element; each file receives its part of the result", "Combine the FILEs element by element; each FILE then holds its part of the result, and is\nshorter. If the elements cannot be divided evenly, the first FILEs hold one more."},
		{plan.AllToAll, "alltoall", "Exchange parts: each file receives its part of every file", "Exchange parts of the FILEs: each FILE then holds its part of every FILE, in order."},
	}
}

func (a *app) collectVerb(c fileVerb) *cobra.Command {
	f := &collectFlags{}
	combines := c.kind.Combines()
	use := c.name
	if combines {
		use += " [--op OP] [--dtype TYPE]"
	}
	if c.kind == plan.Reduce || c.kind == plan.Broadcast {
		use += " [--root N]"
	}
	cmd := &cobra.Command{
		Use:   use + " [--out FILE]... [--json] FILE...",
		Short: c.short,
		Long:  c.what, Annotations: withTopic(topicCollectives),
		Example: collectExample(c),
		Args:    arguments(1, plan.MaxRanks, fmt.Sprintf("1 to %d FILEs", plan.MaxRanks)),
	}
	if combines {
		cmd.Flags().StringVar(&f.op, "op", elem.Sum.String(), "sum, prod, min, max or avg.")
		completeWith(cmd, "op", "sum", "prod", "min", "max", "avg")
		cmd.Flags().BoolVar(&f.strict, "strict", false, "Combine in the order of the FILEs, so that every bit of the result is independent of where they are.")
	}
	cmd.Flags().StringVar(&f.dtype, "dtype", "", "Element type, such as float32 or f32. Default: user.hmc.dtype of the FILEs.")
	completeWith(cmd, "dtype", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
	if c.kind == plan.Reduce || c.kind == plan.Broadcast {
		cmd.Flags().IntVar(&f.root, "root", 0, "Rank of the FILE that receives the result, or whose bytes are sent to the others.")
	}
	cmd.Flags().StringArrayVar(&f.out, "out", nil, "File for a result: one for each rank, in order; for reduce, only one.")
	cmd.Flags().StringVar(&f.outDir, "out-dir", "", "Directory for the results, which get the names of the FILEs.")
	cmd.Flags().StringVar(&f.algorithm, "algorithm", "", "Algorithm used between nodes, such as ring. Default: the fastest by the cost model.")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "Print JSON. Fields are only ever added.")
	return runs(cmd, func(ctx context.Context, args []string) error { return a.collect(ctx, c, args, f) })
}

func collectExample(c fileVerb) string {
	switch c.kind {
	case plan.AllReduce:
		return "  hmcfs allreduce --op avg --dtype f32 /mnt/hmc/cuda0/grad \\\n    /mnt/hmc/nodes/b/cuda0/grad"
	case plan.Reduce:
		return "  hmcfs reduce --op max --dtype f32 --out /mnt/hmc/host/m \\\n    /mnt/hmc/cuda0/x /mnt/hmc/cuda1/x"
	case plan.Broadcast:
		return "  hmcfs broadcast --out /mnt/hmc/cuda1/w \\\n    --out /mnt/hmc/nodes/b/cuda0/w /mnt/hmc/cuda0/w"
	default:
		return "  hmcfs " + c.name + " --dtype f32 --out-dir /mnt/hmc/host/out \\\n    /mnt/hmc/cuda0/x /mnt/hmc/cuda1/y"
	}
}

func (a *app) collect(ctx context.Context, c fileVerb, args []string, f *collectFlags) error {
	r, err := c.request(args, f)
	if err == nil {
		err = c.fromEnvironment(&r, a.Getenv)
	}
	if err != nil {
		return collectFault(c.name, usage(err))
	}
	ranks := &rankFiles{names: args}
	defer ranks.close()
	if err = ranks.open(c, r.Root); err != nil {
		return collectFault(c.name, err)
	}
	if r.Dtype, err = ranks.dtype(c, f.dtype); err != nil {
		return collectFault(c.name, usage(err))
	}
	outs, err := ranks.outputs(c, f)
	if err != nil {
		return collectFault(c.name, usage(err))
	}
	if err = ranks.create(outs, r.Dtype); err != nil {
		return collectFault(c.name, err)
	}
	answer, err := ranks.client.Collect(ctx, r, ranks.sources, ranks.targets)
	if err == nil {
		err = ranks.rename(outs)
	}
	if err != nil {
		return collectFault(c.name, ranks.explain(err))
	}
	if f.asJSON {
		return printJSON(a.Stdout, answer)
	}
	a.printCollect(c, answer)
	return nil
}

// fromEnvironment sets what no flag sets.
func (c fileVerb) fromEnvironment(r *adminapi.CollectRequest, getenv func(string) string) error {
	s, err := env.Parse(getenv)
	if err != nil {
		return err
	}
	if r.Algorithm == "" {
		r.Algorithm = string(s.Algorithm(c.kind))
	} else if !plan.Algorithm(r.Algorithm).Known() {
		return noAlgorithm(r.Algorithm)
	}
	r.Strict = r.Strict || s.Strict() && c.kind.Combines()
	return nil
}

// request returns the part of the request that does not depend on the files.
func (c fileVerb) request(args []string, f *collectFlags) (adminapi.CollectRequest, error) {
	r := adminapi.CollectRequest{Verb: c.kind.String(), Root: f.root, Strict: f.strict, Algorithm: f.algorithm}
	if f.op != "" {
		op, err := elem.ParseOp(f.op)
		if err != nil {
			return r, fmt.Errorf("--op: %w", err)
		}
		r.Op = op.String()
	}
	switch {
	case f.root < 0 || f.root >= len(args):
		return r, fmt.Errorf("--root %d: use 0 to %d, the rank of one of the FILEs", f.root, len(args)-1)
	case len(f.out) > 0 && f.outDir != "":
		return r, errors.New("--out and --out-dir exclude each other; use one of them")
	case c.kind == plan.Broadcast && len(f.out) > 0 && len(args) != 1:
		return r, errors.New("with --out, broadcast takes one FILE: the one to copy")
	case c.kind == plan.Broadcast && f.outDir != "":
		return r, errors.New("broadcast has no --out-dir; name each target with --out")
	}
	return r, nil
}

func (a *app) printCollect(c fileVerb, r adminapi.CollectAnswer) {
	what := r.Dtype
	if r.Op != "" {
		what += " " + r.Op
	}
	where := "one node"
	if r.Nodes > 1 {
		where = fmt.Sprintf("%d nodes", r.Nodes)
	}
	fmt.Fprintf(a.Stdout, "%s: %s of %v, %s, on %s by %s (%s, %s): %.6f s, algbw %s, busbw %s\n",
		c.name, several(r.Ranks, "file"), r.Size, what, where, r.Algorithm, r.Because, r.Path, r.Seconds,
		rate(uint64(r.Algbw), 1), rate(uint64(r.Busbw), 1))
	if r.Nodes > 1 && r.Calls > 0 {
		fmt.Fprintf(a.Stdout, "  between the nodes: %s, %.6f s, predicted %.6f s; one node sent %d bytes and received %d\n",
			several(r.Calls, "segment"), r.Measured, r.Predicted, r.Sent, r.Received)
	}
}

// dtype returns the element type: the one given, or that of the files. If both exist, they
// must agree.
func (r *rankFiles) dtype(c fileVerb, given string) (string, error) {
	said := map[string]string{} // by type
	for i, name := range r.names {
		if r.sources[i] == nil {
			continue
		}
		value := make([]byte, 64)
		n, err := unix.Getxattr(name, dtypeXattr, value)
		if err != nil || n == 0 {
			continue
		}
		t, err := elem.ParseType(string(value[:n]))
		if err != nil {
			if given == "" && c.kind.Combines() {
				return "", fmt.Errorf("%s: %s: %w; give the element type with --dtype", name, dtypeXattr, err)
			}
			continue
		}
		said[t.String()] = name
	}
	want := given
	if given != "" {
		t, err := elem.ParseType(given)
		if err != nil {
			return "", fmt.Errorf("--dtype: %w", err)
		}
		want = t.String()
		said[want] = "--dtype"
	}
	types := make([]string, 0, len(said))
	for t, name := range said {
		want = t
		types = append(types, fmt.Sprintf("%s by %s", t, name))
	}
	slices.Sort(types)
	switch {
	case len(said) > 1:
		return "", fmt.Errorf("the element types differ: %s; all FILEs must have the same type: correct %s of the FILEs, or --dtype",
			strings.Join(types, ", and "), dtypeXattr)
	case len(said) == 1:
		return want, nil
	case c.kind.Combines():
		return "", fmt.Errorf("the element type of %s is not known; give --dtype, such as --dtype float32, or set its attribute %s", r.names[0], dtypeXattr)
	}
	return elem.Uint8.String(), nil
}

// outputs returns the paths of the results, empty for a rank without one; nil means in
// place.
func (r *rankFiles) outputs(c fileVerb, f *collectFlags) ([]string, error) {
	outs := f.out
	switch {
	case f.outDir != "":
		for i, name := range r.names {
			out := ""
			if c.kind != plan.Reduce || i == f.root {
				out = filepath.Join(f.outDir, filepath.Base(name))
			}
			outs = append(outs, out)
		}
	case len(outs) == 0:
		return nil, nil
	case c.kind == plan.Reduce && len(outs) == 1:
		outs = make([]string, len(r.names))
		outs[f.root] = f.out[0]
	case c.kind == plan.Broadcast:
		// The FILE is the root, and each --out is a further rank.
		r.spread(outs)
		outs = append([]string{""}, outs...)
	case len(outs) != len(r.names):
		return nil, fmt.Errorf("%d times --out for %d FILEs, each of which has a result; give one for each FILE, or use --out-dir", len(outs), len(r.names))
	}
	seen := map[string]bool{"": true}
	for _, out := range outs {
		if abs, err := filepath.Abs(out); err == nil && out != "" {
			if seen[abs] {
				return nil, fmt.Errorf("%s is named for two results; give each result its own --out", out)
			}
			seen[abs] = true
		}
	}
	return outs, nil
}

// collectFault returns an error, which names the files, with its exit code.
func collectFault(verb string, err error) error {
	err = inPlainWords(err)
	code := exitCode(err)
	if code == exitFailure && errors.Is(err, client.ErrNotMounted) {
		code = exitNotMounted
	}
	return &codeError{code: code, err: fmt.Errorf("%s: %w", verb, err)}
}

// inPlainWords removes the texts of sentinel errors that repeat what the rest of the
// message says.
func inPlainWords(err error) error {
	text := err.Error()
	for _, class := range []string{elem.ErrType.Error(), filecollect.ErrTask.Error(), objects.ErrInvalid.Error(), job.ErrOptions.Error()} {
		text = strings.ReplaceAll(text, ": "+class, "")
		text = strings.ReplaceAll(text, class+": ", "")
	}
	return &explained{text: text, err: err}
}

func noAlgorithm(name string) error {
	return fmt.Errorf("--algorithm: %q is unknown; use one of %s", name, strings.Join(as[string](plan.Algorithms()), ", "))
}

// several formats a number of things.
func several[N ~int | ~uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// namedFault adds the path that was given to an error.
func namedFault(name string, err error) error {
	if errors.Is(err, client.ErrNotMounted) {
		return err // it contains the path
	}
	if errors.Is(err, unix.EHOSTUNREACH) {
		return fmt.Errorf("%w; hmcfs nodes shows why its node is unreachable", err)
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok && pe.Path == name {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// findOf opens a file to identify it to the daemon, and returns the client of that daemon.
// Unless of is nil, the file must be on its mount.
func findOf(name string, of *client.Client) (*client.Client, *os.File, error) {
	c, f, err := client.Find(name)
	if err != nil {
		return nil, nil, namedFault(name, err)
	}
	if of != nil && of.Socket() != c.Socket() {
		return nil, nil, errors.Join(fmt.Errorf("%s is not on the same mount as the files before it; copy it to that mount, or name a file of another node by its path under nodes/NODE/ of that mount", name), f.Close())
	}
	return c, f, nil
}
