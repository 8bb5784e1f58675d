package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

const (
	// maxConnections bounds the connections of one server, as each uses a descriptor of the daemon.
	maxConnections = 64
	// maxHeader bounds the bytes of a request's header.
	maxHeader = 16 << 10
	// headerLimit, answerLimit and idleLimit bound the time of a request's header, of an answer that
	// ends, and between two requests. writeLimit bounds the time of both and of a client that does not
	// read; what never ends sets limits of its own.
	headerLimit = 10 * time.Second
	answerLimit = time.Minute
	idleLimit   = time.Minute
	writeLimit  = 2 * answerLimit
)

// Server is one server. Its requests wait until Serve is called.
type Server struct {
	listener *places
	option   string
	address  string
	log      *zap.Logger
	http     *http.Server
	// serving is closed when Serve's goroutine has ended; nil before Serve.
	serving chan struct{}
}

// Listen occupies an address. option is the name of the option that has it, for errors.
func Listen(ctx context.Context, option, address string, log *zap.Logger) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w; choose another address, or leave the option out", option, address, err)
	}
	return &Server{listener: newPlaces(l, maxConnections), option: option, address: address, log: log}, nil
}

// Serve answers requests until Close. It must be called once, and does nothing for a nil Server.
func (s *Server) Serve(handler http.Handler) {
	if s == nil {
		return
	}
	s.serving = make(chan struct{})
	s.http = &http.Server{
		Handler: named(s.listener.Addr(), s.address, handler), ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit, IdleTimeout: idleLimit,
		WriteTimeout: writeLimit, MaxHeaderBytes: maxHeader, ErrorLog: zap.NewStdLog(s.log),
	}
	s.listener.watch(s.http)
	go func() {
		defer close(s.serving)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("server ended", zap.String("option", s.option), zap.Error(err))
		}
	}()
}

// Addr returns the address at which the server listens, as HOST:PORT; empty for a nil Server.
func (s *Server) Addr() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close ends the server and every request in progress. A nil Server is closed.
func (s *Server) Close() {
	switch {
	case s == nil:
	case s.http == nil:
		_ = s.listener.Close() // nothing was accepted
	default:
		_ = s.http.Close() // the listener is closed in any case
		<-s.serving
	}
}

// named refuses requests to a server on this machine alone that name another host. One that other
// machines reach may have any name.
func named(addr net.Addr, address string, next http.Handler) http.Handler {
	if tcp, ok := addr.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return next
	}
	names := []string{"localhost", hostOf(address)}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		ip, err := netip.ParseAddr(host)
		if local := err == nil && ip.Unmap().IsLoopback(); !local && !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) }) {
			http.Error(w, fmt.Sprintf("%q is not this server, which listens on %s", host, addr), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf returns the host of HOST:PORT, or of HOST alone.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
