package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
)

// cp copies with the program cp where a node's mount is visible, from a file that its owner
// writes once to a new one.
func (n *nodes) cp(name string, m *member, source file, dst string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return n.ready(ctx, m, source, dst) },
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			return int64(n.opts.size), m.shell(ctx, "cp", source.path, dst)
		}),
	}
}

// file is a file with two paths: as seen by the node that copies it, and by its owner.
type file struct {
	path  string
	owner *member
	own   string
}

// of returns a file of one node, as another one sees it.
func of(sees, owner *member, device string) file {
	f := file{owner: owner, own: owner.Path(device, "file"), path: owner.Path(device, "file")}
	if sees != owner {
		f.path = sees.at(owner, device, "file")
	}
	return f
}

// ready ensures that the source exists, with bytes that depend on their offset, and the target
// does not.
func (n *nodes) ready(ctx context.Context, m *member, source file, dst string) error {
	const fill = `test -f "$1" && test $(stat -c %s "$1") = "$2" || head -c "$2" /dev/urandom > "$1"; rm -f "$3"`
	if err := source.owner.shell(ctx, "sh", "-c", fill, "sh", source.own, fmt.Sprint(uint64(n.opts.size)), "/nowhere"); err != nil {
		return err
	}
	return m.shell(ctx, "rm", "-f", dst)
}

// forget removes files where a node sees them.
func (n *nodes) forget(m *member, paths ...string) func() error {
	return func() error {
		return m.Command(context.Background(), "rm", append([]string{"-f"}, paths...)...).Run()
	}
}

const cpNote = "The whole of the process cp is timed; the target is a new file, and its memory is taken meanwhile."

// cableCopies returns the rows of copies between two network namespaces.
func (n *nodes) cableCopies() []row {
	var rows []row
	for _, device := range []struct {
		name  string
		bound float64
	}{{"host", 0.75}, {"ocl0", 0.65}} {
		pulled, pushed := n.a.Path(device.name, "copy"), n.a.at(n.b, device.name, "copy")
		rows = append(rows, row{
			name: fmt.Sprintf("cp between two nodes, %s to %s, over veth", device.name, device.name), unit: gigabytes,
			sides: []side{
				n.cp("cp from the other node", n.a, of(n.a, n.b, device.name), pulled),
				n.peers.iperf(n.peers.veth),
				n.cp("cp to the other node", n.a, of(n.a, n.a, device.name), pushed),
			},
			wants: []want{
				{of: "cp from the other node", against: "iperf3", bound: device.bound},
				{of: "cp to the other node", against: "iperf3", bound: device.bound},
			},
			notes: []string{cpNote + " " + iperfNote},
			after: n.forget(n.a, pulled, pushed, n.a.Path(device.name, "file"), n.a.at(n.b, device.name, "file")),
		})
	}
	return rows
}

// hostCopies returns the rows of copies between two nodes of one host.
func (n *nodes) hostCopies() []row {
	far, near := n.c.Path("sim1", "far"), n.c.Path("sim1", "near")
	hostFar, hostNear := n.c.Path("host", "far"), n.c.Path("sim0", "near")
	return []row{
		{
			name: "cp between two nodes of one host, sim0 to sim1", unit: gigabytes,
			sides: []side{
				n.cp("cp from the other node", n.c, of(n.c, n.d, "sim0"), far),
				n.cp("local cp", n.c, of(n.c, n.c, "sim0"), near),
			},
			wants: []want{{of: "cp from the other node", against: "local cp", bound: 0.6}},
			notes: []string{"A simulated device shows its memory to nobody, so the local copy is staged through pinned slots. " + cpNote},
			after: n.forget(n.c, far, near, n.c.Path("sim0", "file"), n.c.at(n.d, "sim0", "file")),
		},
		{
			name: "cp between two nodes of one host, host to host", unit: gigabytes,
			sides: []side{
				n.cp("cp from the other node", n.c, of(n.c, n.d, "host"), hostFar),
				n.cp("local cp, host to sim0", n.c, of(n.c, n.c, "host"), hostNear),
			},
			notes: []string{cpNote},
			after: n.forget(n.c, hostFar, hostNear, n.c.Path("host", "file"), n.c.at(n.d, "host", "file")),
		},
	}
}

// looked is the number of files that are looked up one by one, listed the number of files that
// are listed.
const (
	looked = 500
	listed = 10_000
)

// questionRows measures the cost of requests to another node.
func (n *nodes) questionRows() []row {
	dir := n.a.at(n.b, "host", "names")
	return []row{
		{
			name: "stat of a file of another node, cold", unit: micros,
			sides: []side{
				{
					Name: "stat", Prepare: func(ctx context.Context) error { return n.makeNames(ctx, looked) },
					Run: func(ctx context.Context) (float64, error) {
						return child(ctx, n.a.Command, "stat", dir, fmt.Sprint(looked))
					},
				},
				n.roundTrip(),
			},
			wants: []want{{of: "stat", against: "round trip", bound: 5, atMost: true}},
			notes: []string{
				fmt.Sprintf("The median of %d files that were never looked at since they were made, by lstat in one thread that stands in their directory. The round trip is that of", looked),
				"hmcfs perf's tag on the same cable, twice its half; both ends spin for it.",
			},
			after: n.forgetNames,
		},
		{
			name: fmt.Sprintf("ls -l of %d files of another node", listed), unit: "questions",
			sides: []side{{
				Name: "ls -l", Prepare: func(ctx context.Context) error { return n.makeNames(ctx, listed) },
				Run: func(ctx context.Context) (float64, error) { return n.questions(ctx, "ls", "-l", dir) },
			}},
			wants: []want{{of: "ls -l", bound: 20.5, atMost: true}},
			notes: []string{"What the node has asked others meanwhile, by its own count."},
			after: n.forgetNames,
		},
	}
}

// makeNames creates files in a new directory of b.
func (n *nodes) makeNames(ctx context.Context, count int) error {
	const script = `rm -rf "$1"; mkdir "$1"; cd "$1"; seq -f file%06.0f "$2" | xargs touch`
	return n.b.shell(ctx, "sh", "-c", script, "sh", n.b.Path("host", "names"), fmt.Sprint(count))
}

func (n *nodes) forgetNames() error {
	return n.b.Command(context.Background(), "rm", "-rf", n.b.Path("host", "names")).Run()
}

// roundTrip measures the round trip of a tag over the cable, in seconds.
func (n *nodes) roundTrip() side {
	tag := n.peers.tag(n.peers.veth, "", "tcp")
	return side{Name: "round trip", Run: func(ctx context.Context) (float64, error) {
		half, err := tag.Run(ctx)
		return 2 * half, err
	}}
}

// questions returns the number of requests that a sends to others while a program runs.
func (n *nodes) questions(ctx context.Context, name string, args ...string) (float64, error) {
	before, err := n.a.Status(ctx)
	if err != nil {
		return 0, err
	}
	if err = n.a.shell(ctx, name, args...); err != nil {
		return 0, err
	}
	after, err := n.a.Status(ctx)
	if err != nil {
		return 0, err
	}
	return float64(after.Cluster.Traffic.Questions - before.Cluster.Traffic.Questions), nil
}

// besideRows compares a node's own devices with those of a mount outside a cluster.
func (n *nodes) besideRows() []row {
	const clustered, alone = "node", "no node"
	pair := func(make func(name string, m *member) side) []side {
		return []side{make(clustered, n.c), make(alone, n.alone)}
	}
	wants := []want{{of: clustered, against: alone, bound: 0.95}}
	l := &lab{opts: n.opts}
	var rows []row
	for _, device := range []string{"host", "sim0"} {
		paths := []string{n.c.Path(device, "own"), n.alone.Path(device, "own")}
		rows = append(rows,
			row{
				name: "a node's own device, dd write to " + device, unit: gigabytes, wants: wants, after: removing(paths...),
				sides: pair(func(name string, m *member) side { return l.ddWrite(name, m.Path(device, "own")) }),
			},
			row{
				name: "a node's own device, dd read of " + device, unit: gigabytes, wants: wants, after: removing(paths...),
				sides: pair(func(name string, m *member) side { return l.ddRead(name, m.Path(device, "own")) }),
			})
	}
	dirs := []string{n.c.Path("sim0", "many"), n.alone.Path("sim0", "many")}
	return append(rows, row{
		name: "a node's own device, create and unlink in sim0", unit: perSecond, wants: wants, after: removing(dirs...),
		sides: pair(func(name string, m *member) side {
			dir := m.Path("sim0", "many")
			return side{
				Name:    name,
				Prepare: func(context.Context) error { return os.MkdirAll(dir, 0o700) },
				Run: bench.Timed(func(ctx context.Context) (int64, error) {
					return bench.CreateUnlink(ctx, dir, n.opts.files)
				}),
			}
		}),
	})
}

// statOnce calls stat once for each file of a directory and returns the median time in
// seconds. It runs in the directory, so that the path of the directory is not looked up.
func statOnce(ctx context.Context, dir string, count int) (float64, error) {
	if err := os.Chdir(dir); err != nil {
		return 0, err
	}
	var all bench.Series
	for i := range count {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		begin := time.Now()
		if _, err := os.Lstat(fmt.Sprintf("file%06d", i+1)); err != nil {
			return 0, err
		}
		all = append(all, time.Since(begin).Seconds())
	}
	return all.Median(), nil
}
