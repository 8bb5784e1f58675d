package admin

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport"
)

// Operation holds the counters of one filesystem operation.
type Operation struct {
	Name    string
	Count   uint64
	Errors  uint64
	Seconds float64
}

// Metrics are the sources of the metrics. A nil function has none.
type Metrics struct {
	Version    string
	Transfers  func() transport.Stats
	Devices    func(context.Context) ([]objects.DeviceStatus, error)
	Operations func() []Operation
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
		newCollector(m),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if m.Cluster != nil {
		r.MustRegister(newClusterCollector(m.Cluster))
	}
	if m.Calls != nil {
		r.MustRegister(m.Calls)
	}
	return r
}

// collector reads the counters when it is collected; it has none of its own.
type collector struct {
	from Metrics

	info                                            *prometheus.Desc
	bytes, operations, failures, latency            *prometheus.Desc
	pinnedUsed, pinnedTotal, pinFailures            *prometheus.Desc
	registered, registeredPieces, registeredBytes   *prometheus.Desc
	memoryTotal, memoryUsed, memoryFree, memoryHeld *prometheus.Desc
	devEpoch                                        *prometheus.Desc
	fsCount, fsErrors, fsSeconds                    *prometheus.Desc
	limit, refusals                                 *prometheus.Desc
}

func newCollector(m Metrics) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hmcfs_"+name, help, labels, nil)
	}
	return &collector{
		from:        m,
		info:        d("build_info", "Always 1; the label is the version.", "version"),
		bytes:       d("transfer_bytes_total", "Bytes moved, by path and device.", "path", "device"),
		operations:  d("transfer_operations_total", "Copies that moved every byte, by path and device.", "path", "device"),
		failures:    d("transfer_errors_total", "Copies that failed or were cancelled, by path and device.", "path", "device"),
		latency:     d("transfer_seconds", "Time of one copy, by path and device.", "path", "device"),
		pinnedUsed:  d("pinned_in_use_bytes", "Pinned buffers in use by copies."),
		pinnedTotal: d("pinned_bytes", "Pinned buffers, including those kept for reuse."),
		pinFailures: d("pin_failures_total", "Pinned buffers that a device could not lock; copies through them are slower."),
		registered:  d("registered_bytes", "Bytes of host files that are registered with devices."),
		registeredPieces: d("registered_pieces_total",
			"Pieces of host files that copies looked up: hit, registered (newly), failed; and that were dropped: evicted, stale.", "outcome"),
		registeredBytes: d("registered_transfer_bytes_total", "Bytes that devices copied from and to registered files."),
		memoryTotal:     d("device_memory_bytes", "Memory of a device that hmcfs may use.", "device", "family"),
		memoryUsed:      d("device_memory_used_bytes", "Memory of a device in use by objects.", "device", "family"),
		memoryFree:      d("device_memory_free_bytes", "Free memory of a device.", "device", "family"),
		memoryHeld:      d("device_memory_held_bytes", "Memory allocated on a device and not yet released, including memory kept for new objects.", "device", "family"),
		devEpoch:        d("device_epoch_info", "Always 1; the label is the incarnation of a device's memory.", "device", "epoch"),
		fsCount:         d("fs_operations_total", "Requests of the kernel, by operation.", "operation"),
		fsErrors:        d("fs_errors_total", "Requests that failed, by operation.", "operation"),
		fsSeconds:       d("fs_seconds_total", "Time spent on requests, by operation.", "operation"),
		limit:           d("limit", "Limits of one user, inode or session, or of all together.", "limit"),
		refusals:        d("limit_refusals_total", "Requests refused because a limit was reached.", "limit"),
	}
}

// Describe sends the descriptors of all metrics that Collect may send.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.info, c.bytes, c.operations, c.failures, c.latency, c.pinnedUsed, c.pinnedTotal, c.pinFailures,
		c.registered, c.registeredPieces, c.registeredBytes,
		c.memoryTotal, c.memoryUsed, c.memoryFree, c.memoryHeld, c.devEpoch, c.fsCount, c.fsErrors, c.fsSeconds,
		c.limit, c.refusals,
	} {
		ch <- d
	}
}

// Collect sends the current values.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge(ch, c.info, 1, c.from.Version)
	if c.from.Transfers != nil {
		c.transfers(ch, c.from.Transfers())
	}
	if c.from.Devices != nil {
		c.devices(ch)
	}
	if c.from.Limits != nil {
		for _, l := range c.from.Limits() {
			gauge(ch, c.limit, float64(l.Limit), l.Name)
			counter(ch, c.refusals, float64(l.Refused), l.Name)
		}
	}
	if c.from.Operations == nil {
		return
	}
	for _, o := range c.from.Operations() {
		counter(ch, c.fsCount, float64(o.Count), o.Name)
		counter(ch, c.fsErrors, float64(o.Errors), o.Name)
		if o.Seconds > 0 {
			counter(ch, c.fsSeconds, o.Seconds, o.Name)
		}
	}
}

func (c *collector) transfers(ch chan<- prometheus.Metric, s transport.Stats) {
	gauge(ch, c.pinnedUsed, float64(s.PinnedInUse))
	gauge(ch, c.pinnedTotal, float64(s.PinnedTotal))
	counter(ch, c.pinFailures, float64(s.PinFailures))
	gauge(ch, c.registered, float64(s.Registered.Bytes))
	counter(ch, c.registeredBytes, float64(s.Registered.DirectBytes))
	for outcome, n := range map[string]uint64{
		"hit": s.Registered.Hits, "registered": s.Registered.Registered, "failed": s.Registered.Failures,
		"evicted": s.Registered.Evicted, "stale": s.Registered.Stale,
	} {
		counter(ch, c.registeredPieces, float64(n), outcome)
	}
	for _, p := range s.Paths {
		labels := []string{string(p.Path), string(p.Device)}
		counter(ch, c.bytes, float64(p.Bytes), labels...)
		counter(ch, c.operations, float64(p.Operations), labels...)
		counter(ch, c.failures, float64(p.Errors), labels...)
		buckets := make(map[float64]uint64, len(p.Latency))
		for _, b := range p.Latency {
			buckets[b.LE] = b.Count
		}
		ch <- prometheus.MustNewConstHistogram(c.latency, p.Operations, p.Seconds, buckets, labels...)
	}
}

func (c *collector) devices(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	devs, err := c.from.Devices(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.memoryUsed, err)
		return
	}
	for _, d := range devs {
		labels := []string{string(d.Info.Name), string(d.Info.Family)}
		gauge(ch, c.memoryTotal, float64(d.Usage.Total), labels...)
		gauge(ch, c.memoryUsed, float64(d.Usage.Used), labels...)
		gauge(ch, c.memoryFree, float64(d.Usage.Free), labels...)
		gauge(ch, c.memoryHeld, float64(d.Held), labels...)
		gauge(ch, c.devEpoch, 1, string(d.Info.Name), strconv.FormatUint(uint64(d.Epoch), 10))
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}
