package admin

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport"
)

// Metrics are the sources of the metrics. A nil function has none.
type Metrics struct {
	Version    string
	Transfers  func() transport.Stats
	Devices    func(context.Context) ([]objects.DeviceStatus, error)
	Operations func() []fs.OperationStats
	// Cluster fails if the mount is not part of a cluster.
	Cluster func() (adminapi.Cluster, error)
	Limits  func() []metadata.LimitStatus
	// Calls has the metrics of sessions; nil has none.
	Calls *Calls
}

// Registry returns a new registry with the metrics of hmcfs, of the Go runtime and of the
// process.
func (m Metrics) Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collector{m},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if m.Calls != nil {
		r.MustRegister(m.Calls)
	}
	return r
}

// collector reads the counters when it is collected; it has none of its own.
type collector struct{ from Metrics }

// Describe describes no metrics: the registry checks them when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current values.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	to := samples(ch)
	to.gauge("build_info", "Always 1; the label is the version.", 1, labels{"version": c.from.Version})
	if c.from.Transfers != nil {
		to.transfers(c.from.Transfers())
	}
	if c.from.Devices != nil {
		to.devices(c.from.Devices)
	}
	if c.from.Limits != nil {
		for _, l := range c.from.Limits() {
			of := labels{"limit": l.Name}
			to.gauge("limit", "Limits of one user, inode or session, or of all together.", float64(l.Limit), of)
			to.counter("limit_refusals_total", "Requests refused because a limit was reached.", float64(l.Refused), of)
		}
	}
	if c.from.Operations != nil {
		to.operations(c.from.Operations())
	}
	if c.from.Cluster != nil {
		if known, err := c.from.Cluster(); err == nil {
			to.cluster(known)
		}
	}
}

// samples receives values of metrics.
type samples chan<- prometheus.Metric

type labels = prometheus.Labels

func describe(name, help string, of labels) *prometheus.Desc {
	return prometheus.NewDesc("hmcfs_"+name, help, nil, of)
}

func (to samples) gauge(name, help string, v float64, of labels) {
	to <- prometheus.MustNewConstMetric(describe(name, help, of), prometheus.GaugeValue, v)
}

func (to samples) counter(name, help string, v float64, of labels) {
	to <- prometheus.MustNewConstMetric(describe(name, help, of), prometheus.CounterValue, v)
}

func (to samples) transfers(s transport.Stats) {
	to.gauge("pinned_in_use_bytes", "Pinned buffers in use by copies.", float64(s.PinnedInUse), nil)
	to.gauge("pinned_bytes", "Pinned buffers, including those kept for reuse.", float64(s.PinnedTotal), nil)
	to.counter("pin_failures_total", "Pinned buffers that a device could not lock; copies through them are slower.", float64(s.PinFailures), nil)
	to.gauge("registered_bytes", "Bytes of host files that are registered with devices.", float64(s.Registered.Bytes), nil)
	to.counter("registered_transfer_bytes_total", "Bytes that devices copied from and to registered files.", float64(s.Registered.DirectBytes), nil)
	for outcome, n := range map[string]uint64{
		"hit": s.Registered.Hits, "registered": s.Registered.Registered, "failed": s.Registered.Failures,
		"evicted": s.Registered.Evicted, "stale": s.Registered.Stale,
	} {
		to.counter("registered_pieces_total",
			"Pieces of host files that copies looked up: hit, registered (newly), failed; and that were dropped: evicted, stale.",
			float64(n), labels{"outcome": outcome})
	}
	for _, p := range s.Paths {
		of := labels{"path": string(p.Path), "device": string(p.Device)}
		to.counter("transfer_bytes_total", "Bytes moved, by path and device.", float64(p.Bytes), of)
		to.counter("transfer_operations_total", "Copies that moved every byte, by path and device.", float64(p.Operations), of)
		to.counter("transfer_errors_total", "Copies that failed or were cancelled, by path and device.", float64(p.Errors), of)
		buckets := make(map[float64]uint64, len(p.Latency))
		for _, b := range p.Latency {
			buckets[b.LE] = b.Count
		}
		to <- prometheus.MustNewConstHistogram(describe("transfer_seconds", "Time of one copy, by path and device. Of small copies in a call with many keys one in eight is measured, and stands for the others.", of), p.Operations, p.Seconds, buckets)
	}
}

func (to samples) devices(from func(context.Context) ([]objects.DeviceStatus, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	devs, err := from(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(describe("device_memory_used_bytes", "Memory of a device in use by objects.", nil), err)
		return
	}
	for _, d := range devs {
		of := labels{"device": string(d.Info.Name), "family": string(d.Info.Family)}
		to.gauge("device_memory_bytes", "Memory of a device that hmcfs may use.", float64(d.Usage.Total), of)
		to.gauge("device_memory_used_bytes", "Memory of a device in use by objects.", float64(d.Usage.Used), of)
		to.gauge("device_memory_free_bytes", "Free memory of a device.", float64(d.Usage.Free), of)
		to.gauge("device_memory_held_bytes", "Memory allocated on a device and not yet released, including memory kept for new objects.", float64(d.Held), of)
		to.gauge("device_epoch_info", "Always 1; the label is the incarnation of a device's memory.", 1,
			labels{"device": string(d.Info.Name), "epoch": strconv.FormatUint(uint64(d.Epoch), 10)})
	}
}

func (to samples) operations(all []fs.OperationStats) {
	for _, o := range all {
		of := labels{"operation": o.Name}
		to.counter("fs_operations_total", "Requests of the kernel, by operation.", float64(o.Count), of)
		to.counter("fs_errors_total", "Requests that failed, by operation.", float64(o.Errors), of)
		if o.Bytes > 0 {
			to.counter("fs_bytes_total", "Bytes of requests of the kernel, by operation.", float64(o.Bytes), of)
		}
		if o.Seconds > 0 {
			to.counter("fs_seconds_total", "Time spent on requests, by operation.", o.Seconds, of)
		}
	}
}

func (to samples) cluster(known adminapi.Cluster) {
	to.gauge("cluster_info", "Always 1; the labels identify this node.", 1, labels{
		"cluster": known.Name, "node": string(known.Self.Name), "epoch": strconv.FormatUint(uint64(known.Self.Epoch), 10), "backend": known.State.Backend,
	})
	to.gauge("cluster_nodes", "Number of other nodes.", float64(len(known.Nodes)), nil)
	for _, n := range known.Nodes {
		is := 0.0
		if n.Connected {
			is = 1
		}
		to.gauge("cluster_node_connected", "1 for each other node with a session, else 0.", is, labels{"node": string(n.Name)})
	}
	away := 0.0
	if since := known.State.UnreachableSince; !since.IsZero() {
		away = time.Since(since).Seconds()
	}
	to.gauge("cluster_service_unreachable_seconds", "How long the membership service has not answered; 0 while it does.", away, nil)
	to.gauge("cluster_records_unused", "Entries of the membership service that are ignored: they can't be read, or are too many.", float64(known.State.Unreadable), nil)
	t := known.Traffic
	to.counter("cluster_questions_total", "Requests sent to other nodes.", float64(t.Questions), nil)
	to.counter("cluster_answers_total", "Requests of other nodes that were answered.", float64(t.Answers), nil)
	to.counter("cluster_failures_total", "Requests to other nodes that were not answered.", float64(t.Failures), nil)
	to.counter("cluster_received_bytes_total", "Bytes of files received from other nodes.", float64(t.BytesIn), nil)
	to.counter("cluster_sent_bytes_total", "Bytes of files sent to other nodes.", float64(t.BytesOut), nil)
	to.counter("cluster_invalidations_sent_total", "Notifications of changes sent to other nodes.", float64(t.InvalidationsOut), nil)
	to.counter("cluster_invalidations_received_total", "Notifications of changes received from other nodes.", float64(t.InvalidationsIn), nil)
}
