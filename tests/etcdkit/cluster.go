package etcdkit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// member is the identity of a server in a Cluster.
type member struct {
	name, peer string
	// initial and state are etcd's options initial-cluster, the list of all members, and
	// initial-cluster-state, "new" or "existing".
	initial, state string
}

// Cluster is a cluster of several etcd servers. The methods of a server end and stop that
// member; a member that has lost its data joins again only by Rejoin.
type Cluster struct {
	Servers []*Server
}

// The ports of a Cluster's members. Each member has an address of its own.
const clientPort, peerPort = 2379, 2380

// NewCluster starts a member for each of the options, whose Hosts must differ, and returns
// when all of them serve. The caller closes the Cluster.
func NewCluster(ctx context.Context, all []Options) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("etcd of %d members: %w", len(all), err), c.Close())
		}
	}()
	var initial []string
	for i, o := range all {
		s := &Server{options: o, port: clientPort, member: &member{
			name: "etcd" + strconv.Itoa(i+1), peer: "http://" + net.JoinHostPort(o.Host, strconv.Itoa(peerPort)), state: "new",
		}}
		initial = append(initial, s.member.name+"="+s.member.peer)
		if s.dir, err = os.MkdirTemp("", "hmcfs-etcd-"); err != nil {
			return c, err
		}
		c.Servers = append(c.Servers, s)
	}
	started := make(chan error, len(all))
	for _, s := range c.Servers {
		s.member.initial = strings.Join(initial, ",")
		go func() { started <- s.start(ctx) }() // a member does not serve without the others
	}
	for range all {
		err = errors.Join(err, <-started)
	}
	return c, err
}

// Close ends all members and removes their data.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Endpoints returns the endpoints of all members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Endpoints()...)
	}
	return all
}

// Leader returns the current leader; nil if there is none.
func (c *Cluster) Leader(ctx context.Context) *Server {
	for _, s := range c.Servers {
		if s.leads(ctx) {
			return s
		}
	}
	return nil
}

// answerLimit bounds a request to one member.
const answerLimit = 2 * time.Second

func (s *Server) leads(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	text, err := s.ask(ctx, http.MethodGet, "/metrics", nil)
	return err == nil && strings.Contains(string(text), "\netcd_server_is_leader 1\n")
}

// ask sends an HTTP request to the server, through Options.Dial.
func (s *Server) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.Endpoints()[0]+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: s.options.Dial, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return text, err
}

// call sends a JSON request to the server and decodes the answer.
func (s *Server) call(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	text, err := s.ask(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// Rejoin deletes all data of a member and lets it join the others again, as after the loss
// of its disk. A majority of the others must be running.
func (c *Cluster) Rejoin(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.Stop()
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	if err := c.replace(ctx, s); err != nil {
		return fmt.Errorf("etcd: replace member %s: %w", s.member.name, err)
	}
	s.member.state = "existing"
	return s.start(ctx)
}

// replace announces to the others that a member returns without its data. They refuse that
// while too few of them are connected, and may not answer during an election.
func (c *Cluster) replace(ctx context.Context, s *Server) error {
	other := c.Servers[(slices.Index(c.Servers, s)+1)%len(c.Servers)]
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, answerLimit)
		err := other.replace(limited, s.member.peer)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// replace makes the cluster replace its member at an address by one without name and data.
func (s *Server) replace(ctx context.Context, peer string) error {
	var list struct {
		Members []struct {
			ID       string   `json:"ID"`
			Name     string   `json:"name"`
			PeerURLs []string `json:"peerURLs"`
		} `json:"members"`
	}
	if err := s.call(ctx, "/v3/cluster/member/list", struct{}{}, &list); err != nil {
		return err
	}
	for _, m := range list.Members {
		if !slices.Contains(m.PeerURLs, peer) {
			continue
		}
		if m.Name == "" {
			return nil // it was added before, and the answer was lost
		}
		if err := s.call(ctx, "/v3/cluster/member/remove", map[string]string{"ID": m.ID}, new(any)); err != nil {
			return err
		}
	}
	return s.call(ctx, "/v3/cluster/member/add", map[string][]string{"peerURLs": {peer}}, new(any))
}
