package admin

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// clusterCollector reads the state of the other nodes when it is collected.
type clusterCollector struct {
	from func() (adminapi.Cluster, error)

	info, nodes, connected, unreachable *prometheus.Desc
	unused                              *prometheus.Desc
	questions, answers, failures        *prometheus.Desc
	bytesIn, bytesOut                   *prometheus.Desc
	invalidationsOut, invalidationsIn   *prometheus.Desc
}

func newClusterCollector(from func() (adminapi.Cluster, error)) *clusterCollector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hmcfs_cluster_"+name, help, labels, nil)
	}
	return &clusterCollector{
		from:             from,
		info:             d("info", "Always 1; the labels identify this node.", "cluster", "node", "epoch", "backend"),
		nodes:            d("nodes", "Number of other nodes."),
		connected:        d("node_connected", "1 for each other node with a session, else 0.", "node"),
		unreachable:      d("service_unreachable_seconds", "How long the membership service has not answered; 0 while it does."),
		unused:           d("records_unused", "Entries of the membership service that are ignored: they can't be read, or are too many."),
		questions:        d("questions_total", "Requests sent to other nodes."),
		answers:          d("answers_total", "Requests of other nodes that were answered."),
		failures:         d("failures_total", "Requests to other nodes that were not answered."),
		bytesIn:          d("received_bytes_total", "Bytes of files received from other nodes."),
		bytesOut:         d("sent_bytes_total", "Bytes of files sent to other nodes."),
		invalidationsOut: d("invalidations_sent_total", "Notifications of changes sent to other nodes."),
		invalidationsIn:  d("invalidations_received_total", "Notifications of changes received from other nodes."),
	}
}

// Describe sends the descriptors of all metrics that Collect may send.
func (c *clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.info, c.nodes, c.connected, c.unreachable, c.unused, c.questions, c.answers, c.failures,
		c.bytesIn, c.bytesOut, c.invalidationsOut, c.invalidationsIn,
	} {
		ch <- d
	}
}

// Collect sends the current values; there are none if the mount is not part of a cluster.
func (c *clusterCollector) Collect(ch chan<- prometheus.Metric) {
	known, err := c.from()
	if err != nil {
		return
	}
	gauge(ch, c.info, 1, known.Name, string(known.Self.Name), strconv.FormatUint(uint64(known.Self.Epoch), 10), known.State.Backend)
	gauge(ch, c.nodes, float64(len(known.Nodes)))
	for _, n := range known.Nodes {
		is := 0.0
		if n.Connected {
			is = 1
		}
		gauge(ch, c.connected, is, string(n.Name))
	}
	away := 0.0
	if since := known.State.UnreachableSince; !since.IsZero() {
		away = time.Since(since).Seconds()
	}
	gauge(ch, c.unreachable, away)
	gauge(ch, c.unused, float64(known.State.Unreadable))
	t := known.Traffic
	for desc, n := range map[*prometheus.Desc]uint64{
		c.questions: t.Questions, c.answers: t.Answers, c.failures: t.Failures, c.bytesIn: t.BytesIn, c.bytesOut: t.BytesOut,
		c.invalidationsOut: t.InvalidationsOut, c.invalidationsIn: t.InvalidationsIn,
	} {
		counter(ch, desc, float64(n))
	}
}
