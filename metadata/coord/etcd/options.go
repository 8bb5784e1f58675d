package etcd

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultTimeout is the default timeout of every call.
const DefaultTimeout = 5 * time.Second

const (
	// maxMessage is the maximum size, in bytes, of an answer. Any client with write access
	// may write a thousand values of 1.5 MB.
	maxMessage = 32 << 20
	// maxValue is the number of bytes kept of a value: more than any valid value has, so
	// that its reader rejects it.
	maxValue = 1 << 17
)

// Options configure a Service.
type Options struct {
	// Endpoints are the members of the cluster, HOST:PORT. Required.
	Endpoints []string
	// Prefix is prepended to every name. It begins and ends with a slash, like
	// "/hmcfs/lab/". Required.
	Prefix string
	// TLS, if not nil, enables encryption.
	TLS *tls.Config
	// Username and Password are for clusters that require them. Both or none.
	Username, Password string
	// Timeout bounds every call, including Open. Default DefaultTimeout.
	Timeout time.Duration
}

// EnsureDefaults fills in the fields that have their zero value.
func (o *Options) EnsureDefaults() {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
}

// Validate reports every fault of the options, joined.
func (o *Options) Validate() error {
	var faults []error
	if len(o.Endpoints) == 0 {
		faults = append(faults, errors.New("etcd: no endpoint given"))
	}
	for _, e := range o.Endpoints {
		if e == "" || strings.Contains(e, "/") {
			faults = append(faults, fmt.Errorf("etcd: invalid endpoint %q; use HOST:PORT", e))
		}
	}
	if len(o.Prefix) < 2 || !strings.HasPrefix(o.Prefix, "/") || !strings.HasSuffix(o.Prefix, "/") {
		faults = append(faults, fmt.Errorf("etcd: invalid prefix %q; use one like /hmcfs/NAME/", o.Prefix))
	}
	if (o.Username == "") != (o.Password == "") {
		faults = append(faults, errors.New("etcd: give both a user name and a password, or neither"))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("etcd: timeout %v must not be negative", o.Timeout))
	}
	return errors.Join(faults...)
}

// urls returns the endpoints in the form that the client library expects: all of one
// scheme.
func (o *Options) urls() []string {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	urls := make([]string, 0, len(o.Endpoints))
	for _, e := range o.Endpoints {
		urls = append(urls, scheme+e)
	}
	return urls
}
