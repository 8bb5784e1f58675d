package web

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// maxScrapes bounds the scrapes in progress: each reads all counters, and asks every device.
const maxScrapes = 4

// Metrics returns a handler that serves metrics, and nothing else.
func Metrics(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+adminapi.PathMetrics, http.TimeoutHandler(
		promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}), answerLimit, "the metrics took too long"))
	return mux
}
