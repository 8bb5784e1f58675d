// Scale runs the code of membership and key index for many nodes in one process, and writes
// docs/scale.md:
//
//	go run ./tests/scale [-write] [-nodes 1000] [-keys 1000000]
//	                     [-etcd-nodes 100] [-etcd-keys 100000]
//
// The first two flags are the numbers of nodes and keys that use a service in the same process:
// its network takes no time, so the times are those of the work of all nodes on this machine's
// few processors. The other two are those that use an etcd, which the program starts unless
// -etcd-nodes is 0. All code is the product's, except for the in-process service.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// options describe the size of the worlds.
type options struct {
	nodes, keys         int
	etcdNodes, etcdKeys int
	rest                time.Duration
	write               bool
	doc                 string
}

func main() {
	o := options{doc: "docs/scale.md", rest: 20 * time.Second}
	flag.IntVar(&o.nodes, "nodes", 1000, "nodes of the simulation")
	flag.IntVar(&o.keys, "keys", 1_000_000, "keys of all its nodes")
	flag.IntVar(&o.etcdNodes, "etcd-nodes", 100, "nodes at an etcd; 0 is none")
	flag.IntVar(&o.etcdKeys, "etcd-keys", 100_000, "keys of all of those")
	flag.BoolVar(&o.write, "write", false, "write the table into the document")
	flag.StringVar(&o.doc, "doc", o.doc, "the document of -write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run measures both worlds and prints the table.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	simulation, err := measureWorld(ctx, newSimulated(), o, progress)
	if err != nil {
		return err
	}
	columns := []column{{fmt.Sprintf("simulated: %d nodes, %d keys", o.nodes, o.keys), simulation}}
	if o.etcdNodes > 0 {
		e, err := etcdkit.New(ctx, etcdkit.Options{})
		if err != nil {
			return err
		}
		figures, err := measureWorld(ctx, &real{e}, options{nodes: o.etcdNodes, keys: o.etcdKeys, rest: o.rest}, progress)
		if err = errors.Join(err, e.Close()); err != nil {
			return err
		}
		columns = append(columns, column{fmt.Sprintf("etcd: %d nodes, %d keys", o.etcdNodes, o.etcdKeys), figures})
	}
	text := table(columns)
	fmt.Fprint(out, text)
	if !o.write {
		return nil
	}
	return measure.ReplaceSection(o.doc, sectionBegin, text)
}

// measureWorld creates and measures one world.
func measureWorld(ctx context.Context, s service, o options, progress io.Writer) ([]figure, error) {
	fmt.Fprintf(progress, "scale: %d nodes, %d keys, %T\n", o.nodes, o.keys, s)
	w := &world{service: s, keys: o.keys / o.nodes}
	t := &trial{
		world: w, nodeCount: o.nodes, progress: progress, resting: o.rest,
		bare: func(context.Context, bool) (uint64, error) { return 0, nil },
	}
	if _, ok := s.(simulated); ok {
		t.bare = func(ctx context.Context, keys bool) (uint64, error) { return bare(ctx, o.nodes, w.keys, keys) }
	}
	defer w.close(ctx)
	err := t.run(ctx)
	return t.figures, err
}

// bare returns the memory, in bytes, that a service in this process needs for the records
// of all nodes, or for their keys.
func bare(ctx context.Context, nodes, keys int, wantKeys bool) (uint64, error) {
	before := heap()
	s := newSimulated()
	c := s.Client()
	for i := range nodes {
		l, err := c.Grant(ctx, members.DefaultTTL)
		if err != nil {
			return 0, err
		}
		var entries []coord.Entry
		if wantKeys {
			for k := range keys {
				entries = append(entries, coord.Entry{Name: string(keyindex.Keys) + "/" + key(i, k), Value: fmt.Append(nil, name(i), 1763830000000)})
			}
		} else {
			value, failed := json.Marshal(record(i))
			if failed != nil {
				return 0, failed
			}
			entries = []coord.Entry{{Name: "nodes/" + string(name(i)), Value: value}}
		}
		if _, err = c.Create(ctx, entries, l); err != nil {
			return 0, err
		}
	}
	used := heap() - before
	runtime.KeepAlive(s)
	return used, c.Close()
}

// column holds the measurements of one world.
type column struct {
	title   string
	figures []figure
}

// table returns the measurements of all worlds side by side.
func table(columns []column) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- date: %s\n- machine: %d processors, Go %s\n- load of the last minute: %s\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), measure.Load())
	b.WriteString("| |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
	for i, f := range columns[0].figures {
		b.WriteString("| " + f.name + " |")
		for _, c := range columns {
			if f.name == c.figures[i].name {
				b.WriteString(" " + c.figures[i].value + " |")
			} else {
				b.WriteString(" " + c.figures[i].name + ": " + c.figures[i].value + " |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sectionBegin is the line of the document behind which the table stands.
const sectionBegin = "<!-- measured: go run ./tests/scale -write -->\n"

// short formats a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// bytes formats a size for people.
func bytes(n uint64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
