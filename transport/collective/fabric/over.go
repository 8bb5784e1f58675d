package fabric

import (
	"context"
	"time"

	"github.com/hmcfs/hmcfs/transport/domain"
)

// Options is what Over is told.
type Options struct {
	// Streams leaves memory unmapped: ranks of one host use sockets too.
	Streams bool
	// Timeout is how long a rank may take to come to Over, Share and Reform.
	// Default 30 s.
	Timeout time.Duration
	// Spin is how long Park and Await look before they sleep. Default 50 µs, and
	// none where this host has more ranks than processors.
	Spin time.Duration
}

// Over joins the ranks of a domain. All of them call it. The domain is borrowed,
// and goes on to send and receive.
//
// Errors: a MissingError; those of domain and comm.
func Over(ctx context.Context, d *domain.Comm, o Options) (Fabric, error) {
	panic("fabric: not written yet")
}
