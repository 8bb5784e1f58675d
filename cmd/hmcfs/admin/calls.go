package admin

import (
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/fs/activity"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// Calls measures the calls of sessions, and their requests, also those over plain HTTP: as metrics,
// and one by one in an access log. Its methods may be called from any goroutine.
type Calls struct {
	log   *zap.Logger
	verbs map[adminapi.Verb]verbMetrics
	all   []prometheus.Collector
	open  prometheus.Gauge
	// processes and slow are those of the clients.
	processes activity.Processes
	slow      activity.SlowLog
}

// verbMetrics are the metrics of one verb.
type verbMetrics struct {
	seconds              prometheus.Observer
	refused, keys, fault prometheus.Counter
}

// NewCalls returns a measurement that has seen no call. Calls are also written to log, at level
// info; nil writes none.
func NewCalls(log *zap.Logger) *Calls {
	vec := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hmcfs_session_" + name, Help: help}, []string{"verb"})
	}
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "hmcfs_session_call_seconds",
		Help:    "Time from a call of a session to its answer, by verb; publish, subscribe and wait include waiting, watch ends with its first answer.",
		Buckets: prometheus.ExponentialBuckets(2e-6, 4, 12), // 2 us to 8 s
	}, []string{"verb"})
	refused := vec("calls_refused_total", "Calls of sessions that failed as a whole, by verb.")
	keys := vec("keys_total", "Keys that calls of sessions named or listed, by verb.")
	fault := vec("keys_failed_total", "Keys of calls of sessions that failed, by verb.")
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "hmcfs_sessions", Help: "Open sessions of clients."})
	c := &Calls{
		log: log, verbs: map[adminapi.Verb]verbMetrics{}, open: open,
		all: []prometheus.Collector{seconds, refused, keys, fault, open},
	}
	all := frames.Verbs()
	for verb := frames.FileOpen; verb < frames.FileVerbs; verb++ {
		all = append(all, adminapi.Verb(verb.String()))
	}
	for verb := range frames.RequestWatch + 1 {
		all = append(all, requestName(verb))
	}
	for _, verb := range all {
		label := string(verb)
		c.verbs[verb] = verbMetrics{
			seconds.WithLabelValues(label), refused.WithLabelValues(label), keys.WithLabelValues(label), fault.WithLabelValues(label),
		}
	}
	return c
}

// Describe describes the metrics.
func (c *Calls) Describe(to chan<- *prometheus.Desc) {
	for _, one := range c.all {
		one.Describe(to)
	}
}

// Collect returns the metrics.
func (c *Calls) Collect(to chan<- prometheus.Metric) {
	for _, one := range c.all {
		one.Collect(to)
	}
}

// record counts a call that has been answered. failed is the number of its keys that failed, err
// the error of the whole call.
func (c *Calls) record(by Peer, verb adminapi.Verb, q *adminapi.Call, begun time.Time, failed int, err error) {
	if c == nil {
		return
	}
	outcome := "ok"
	if err != nil {
		_, outcome = statusOf(err)
	}
	var size uint64
	for i := range q.Lists {
		size += uint64(q.Lists[i].Size())
	}
	c.note(by, callRecord{
		verb: verb, keys: len(q.Keys), failed: failed, bytes: size, took: time.Since(begun), refused: err != nil, outcome: outcome,
	})
}

// recordFile counts a call on files that has been answered. moved is the number of bytes or
// entries, fault the error.
func (c *Calls) recordFile(by Peer, verb frames.FileVerb, moved uint64, begun time.Time, fault syscall.Errno) {
	if c == nil {
		return
	}
	r := callRecord{verb: adminapi.Verb(verb.String()), bytes: moved, took: time.Since(begun), refused: fault != 0, outcome: "ok"}
	if fault != 0 {
		r.outcome = unix.ErrnoName(fault)
	}
	c.note(by, r)
}

// recordRequest counts a request whose answer is known, in a frame or over plain HTTP. keys is the
// number of keys listed, err the error of the whole request. A watch, and an export that a session
// holds, are recorded once, at their first answer: it says how long they took to set up, and
// whether they were refused, while their end says only when the client left.
func (c *Calls) recordRequest(by Peer, verb frames.RequestVerb, keys int, begun time.Time, err error) {
	if c == nil {
		return
	}
	r := callRecord{verb: requestName(verb), keys: keys, took: time.Since(begun), refused: err != nil, outcome: "ok"}
	if err != nil {
		_, r.outcome = statusOf(err)
	}
	c.note(by, r)
}

// requestName returns the name of a request in metrics and logs.
func requestName(verb frames.RequestVerb) adminapi.Verb {
	names := [...]adminapi.Verb{"request-unknown", "register", "bind", "export", "collect", "verify", "keys", "watch"}
	if int(verb) >= len(names) {
		verb = 0
	}
	return names[verb]
}

// count adds n to the number of open sessions.
func (c *Calls) count(n float64) {
	if c != nil {
		c.open.Add(n)
	}
}

// watch records the process that has called, and the call if it took long. Calls that wait for other
// processes are never slow.
func (c *Calls) watch(by Peer, r callRecord) {
	var read, written uint64
	switch r.verb {
	case adminapi.VerbMGet, adminapi.VerbMGetH2D, adminapi.VerbSubscribe, adminapi.VerbFetch, adminapi.Verb(frames.FileRead.String()):
		read = r.bytes
	case adminapi.VerbMSet, adminapi.VerbMSetD2H, adminapi.VerbPublish, adminapi.Verb(frames.FileWrite.String()):
		written = r.bytes
	case adminapi.Verb(frames.FileCopy.String()):
		read, written = r.bytes, r.bytes
	default: // it moves no bytes
	}
	if read+written > 0 {
		c.processes.Note(by.PID, by.UID, read, written)
	}
	switch r.verb {
	case adminapi.VerbPublish, adminapi.VerbSubscribe, adminapi.VerbClaim, adminapi.VerbWait:
	default:
		c.slow.Note(string(r.verb), r.took, by.PID, by.UID)
	}
}

// callRecord describes a call that has been answered.
type callRecord struct {
	verb         adminapi.Verb
	keys, failed int
	bytes        uint64
	took         time.Duration
	refused      bool
	outcome      string
}

// note counts a call, and logs it.
func (c *Calls) note(by Peer, r callRecord) {
	m := c.verbs[r.verb]
	m.seconds.Observe(r.took.Seconds())
	m.keys.Add(float64(r.keys))
	m.fault.Add(float64(r.failed))
	if r.refused {
		m.refused.Inc()
	}
	c.watch(by, r)
	if c.log == nil {
		return
	}
	c.log.Info("call", zap.String("verb", string(r.verb)), zap.Int("keys", r.keys), zap.Int("failed", r.failed),
		zap.Uint64("bytes", r.bytes), zap.Int64("us", r.took.Microseconds()), zap.String("outcome", r.outcome),
		zap.Int("uid", by.UID), zap.Int("pid", by.PID))
}
