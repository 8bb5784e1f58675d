package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// The bounds of one transaction. By default servers accept 128 operations, including those
// of nested transactions, and 1.5 MiB.
const (
	maxOps   = 100
	maxBytes = 512 << 10
)

// Create creates entries; see coord.Service.
func (s *Service) Create(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	return s.put(ctx, entries, l, func(key string, _ coord.Entry) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}, coord.ErrExist)
}

// Replace replaces entries; see coord.Service.
func (s *Service) Replace(ctx context.Context, entries []coord.Entry, l coord.Lease) ([]coord.Result, error) {
	return s.put(ctx, entries, l, func(key string, e coord.Entry) clientv3.Cmp {
		if e.Revision == 0 {
			// In etcd, revision 0 means that the name does not exist.
			return clientv3.Compare(clientv3.ModRevision(key), "<", 0)
		}
		return clientv3.Compare(clientv3.ModRevision(key), "=", int64(e.Revision))
	}, coord.ErrChanged)
}

// put writes entries, each on a condition; otherwise is the error if it is not met.
func (s *Service) put(ctx context.Context, entries []coord.Entry, l coord.Lease,
	condition func(key string, e coord.Entry) clientv3.Cmp, otherwise error,
) ([]coord.Result, error) {
	id, alive := s.leaseOf(l)
	if !alive {
		results := make([]coord.Result, len(entries))
		for i := range results {
			results[i].Err = coord.ErrLease
		}
		return results, nil
	}
	return s.many(ctx, entries, s.write, func(e coord.Entry) clientv3.Op {
		key := s.prefix + e.Name
		return clientv3.OpTxn([]clientv3.Cmp{condition(key, e)},
			[]clientv3.Op{clientv3.OpPut(key, string(e.Value), clientv3.WithLease(id))},
			[]clientv3.Op{clientv3.OpGet(key)})
	}, func(found *coord.Entry) coord.Result {
		if found == nil || errors.Is(otherwise, coord.ErrChanged) {
			return coord.Result{Err: otherwise}
		}
		return coord.Result{Found: *found, Err: otherwise}
	})
}

// Delete removes entries; see coord.Service.
func (s *Service) Delete(ctx context.Context, entries []coord.Entry) ([]coord.Result, error) {
	// A delete that arrives late finds either another revision or the entry to delete.
	return s.many(ctx, entries, s.commit, func(e coord.Entry) clientv3.Op {
		key := s.prefix + e.Name
		var is []clientv3.Cmp
		if e.Revision != 0 {
			is = append(is, clientv3.Compare(clientv3.ModRevision(key), "=", int64(e.Revision)))
		}
		return clientv3.OpTxn(is, []clientv3.Op{clientv3.OpDelete(key)}, []clientv3.Op{clientv3.OpGet(key)})
	}, func(found *coord.Entry) coord.Result {
		if found == nil {
			return coord.Result{} // the entry does not exist, as requested
		}
		return coord.Result{Err: coord.ErrChanged}
	})
}

// many applies one operation to each entry, in as few transactions as possible. unmet
// returns the result for an entry whose condition is not met, given the entry that has its
// name.
func (s *Service) many(ctx context.Context, entries []coord.Entry,
	run func(context.Context, []clientv3.Op) (*clientv3.TxnResponse, error),
	op func(coord.Entry) clientv3.Op, unmet func(found *coord.Entry) coord.Result,
) ([]coord.Result, error) {
	results := make([]coord.Result, len(entries))
	for done := 0; done < len(entries); {
		batch := entries[done : done+batchLen(entries[done:])]
		ops := make([]clientv3.Op, 0, len(batch))
		for _, e := range batch {
			ops = append(ops, op(e))
		}
		resp, err := run(ctx, ops)
		switch {
		case errors.Is(err, coord.ErrLease):
			for i := range batch {
				results[done+i].Err = coord.ErrLease
			}
		case err != nil:
			return results[:done], err
		default:
			for i := range batch {
				results[done+i] = s.result(resp.Header, resp.Responses[i].GetResponseTxn(), unmet)
			}
		}
		done += len(batch)
	}
	return results, nil
}

// batchLen returns the number of entries that fit into one transaction, at least one. A
// transaction must not contain a name twice.
func batchLen(entries []coord.Entry) int {
	names := make(map[string]bool, min(len(entries), maxOps))
	bytes := 0
	for i, e := range entries {
		bytes += len(e.Name) + len(e.Value)
		if i > 0 && (i == maxOps || bytes > maxBytes || names[e.Name]) {
			return i
		}
		names[e.Name] = true
	}
	return len(entries)
}

// result returns the outcome for one entry.
func (s *Service) result(h *pb.ResponseHeader, inner *pb.TxnResponse, unmet func(*coord.Entry) coord.Result) coord.Result {
	if inner.GetSucceeded() {
		return coord.Result{Revision: coord.Revision(h.GetRevision())}
	}
	found := inner.GetResponses()[0].GetResponseRange().GetKvs()
	if len(found) == 0 {
		r := unmet(nil)
		if r.Err == nil {
			r.Revision = coord.Revision(h.GetRevision())
		}
		return r
	}
	e := s.entry(found[0])
	return unmet(&e)
}

// commit runs operations in one transaction.
func (s *Service) commit(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.transact(ctx, clientv3.OpTxn(nil, ops, nil))
}

// transact runs a transaction.
func (s *Service) transact(ctx context.Context, txn clientv3.Op) (*clientv3.TxnResponse, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	before := s.highest()
	resp, err := s.client.Do(bounded, txn)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	s.observe(before, resp.Txn().Header)
	return resp.Txn(), nil
}

// certain waits until no failed write can take effect any more.
//
// Errors: coord.ErrUnavailable and the others of coord; the context's.
func (s *Service) certain(ctx context.Context) error {
	m := s.fence.begin(func(m *move) {
		s.fence.end(m, s.moveFence(context.WithoutCancel(ctx)))
	})
	if m == nil {
		return nil
	}
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// moveFence gives the fence a new revision.
func (s *Service) moveFence(ctx context.Context) error {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	former := s.fence.current()
	if s.fence.lease == 0 {
		l, err := s.client.Grant(bounded, int64(fenceTTL/time.Second))
		if err != nil {
			return s.fault(ctx, err)
		}
		s.fence.lease = l.ID
	}
	before := s.highest()
	resp, err := s.client.Put(bounded, s.fence.key, "", clientv3.WithLease(s.fence.lease))
	if err != nil {
		if err = s.fault(ctx, err); errors.Is(err, coord.ErrLease) {
			s.fence.lease = 0
			err = fmt.Errorf("%w: %w", coord.ErrUnavailable, err) // retried with a new lease
		}
		return err
	}
	s.observe(before, resp.Header)
	s.fence.changed(former, resp.Header.GetRevision())
	return nil
}

// write runs operations that put entries. If it fails, its effect is visible by the
// service's next answer or never.
func (s *Service) write(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		if err := s.certain(ctx); err != nil {
			return nil, err
		}
		revision := s.fence.current()
		resp, err := s.transact(ctx, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.fence.key), "=", revision)},
			ops, []clientv3.Op{clientv3.OpGet(s.fence.key)}))
		switch {
		case errors.Is(err, coord.ErrLease):
			return nil, err
		case err != nil:
			s.fence.doubt(revision)
			return nil, err
		case resp.Succeeded:
			return resp, nil
		}
		// The fence was moved meanwhile, or was lost with its lease or with the cluster's
		// data.
		s.fence.changed(revision, fenceIn(resp))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
	}
}

// fenceIn returns the revision of the fence from a response, 0 if the fence is missing.
func fenceIn(resp *clientv3.TxnResponse) int64 {
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		return kv.ModRevision
	}
	return 0
}
