package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// Get reads an entry; see coord.Service.
func (s *Service) Get(ctx context.Context, name string) (coord.Entry, error) {
	resp, err := s.read(ctx, s.prefix+name)
	if err != nil {
		return coord.Entry{}, err
	}
	if len(resp.Kvs) == 0 {
		return coord.Entry{}, coord.ErrNotFound
	}
	return s.entry(resp.Kvs[0]), nil
}

// List reads entries in order; see coord.Service.
func (s *Service) List(ctx context.Context, prefix, after string, limit int) ([]coord.Entry, coord.Revision, error) {
	all := s.prefix + prefix
	from, end := all, clientv3.GetPrefixRangeEnd(all)
	if after != "" {
		from = max(from, s.prefix+after+"\x00")
	}
	if from >= end || limit <= 0 {
		// An empty range would be an error, but the caller still needs the revision.
		resp, err := s.read(ctx, all)
		if err != nil {
			return nil, 0, err
		}
		return nil, coord.Revision(resp.Header.GetRevision()), nil
	}
	var entries []coord.Entry
	var first coord.Revision
	for page := limit; ; {
		resp, err := s.read(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(page)))
		if errors.Is(err, errTooLarge) && page > 1 {
			page /= 2
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if first == 0 {
			first = coord.Revision(resp.Header.GetRevision())
		}
		for _, kv := range resp.Kvs {
			entries = append(entries, s.entry(kv))
			from = string(kv.Key) + "\x00"
		}
		if page = min(page, limit-len(entries)); page == 0 || !resp.More || from >= end {
			return entries, first, nil
		}
	}
}

// errTooLarge reports an answer larger than maxMessage.
var errTooLarge = errors.New("etcd: response exceeds the size limit")

func (s *Service) read(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := s.certain(ctx); err != nil {
		return nil, err
	}
	bounded, cancel := s.bound(ctx)
	defer cancel()
	before := s.highest()
	resp, err := s.client.Get(bounded, key, opts...)
	if code(err) == codes.ResourceExhausted {
		return nil, fmt.Errorf("%w: %w", errTooLarge, s.fault(ctx, err))
	}
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	s.observe(before, resp.Header)
	return resp, nil
}
