package domain

import "github.com/hmcfs/hmcfs/transport/region"

// sendSelf starts a send to our own rank. Its bytes are copied when it is matched with its
// receive.
func (p *pair) sendSelf(r *Request) error {
	if r.kind == kindFlush {
		r.done <- struct{}{}
		return nil
	}
	if err := r.hold(); err != nil {
		return r.describe(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		drop(r.views)
		return r.describe(p.err)
	}
	m := &message{envelope: envelope{tag: r.tag}, total: r.total, from: r}
	for _, v := range r.views {
		m.extents = append(m.extents, v.extent)
	}
	r.msg = m
	if other, ok := p.posted.pop(r.tag); ok {
		p.meetLocked(other, m)
		return nil
	}
	p.unexpected.push(r.tag, m)
	return nil
}

// copyOwnLocked completes a matched send and receive of our own.
//
// +checklocks:p.mu
func (p *pair) copyOwnLocked(r *Request, m *message) {
	s := m.from
	if m.total <= copied && hosts(r.views) && hosts(s.views) {
		var at cursor
		for i, v := range s.views {
			at.view, at.off = i, 0
			r.scatter(v.bytes(0, v.size()), &at)
		}
		p.endLocked(s, nil)
		p.endLocked(r, nil)
		return
	}
	p.active[r], p.active[s] = struct{}{}, struct{}{}
	to, from := r.views, s.views
	p.c.running.Go(func() {
		var err error
		for i := range to {
			if err = region.Copy(p.c.life, to[i].buffer, to[i].off, from[i].buffer, from[i].off, from[i].size()); err != nil {
				err = r.describe(err)
				break
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.endLocked(s, err)
		p.endLocked(r, err)
	})
}

// unmet reports whether a request with our own rank is unmatched.
func (p *pair) unmet(r *Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !r.over && (r.msg == nil || r.msg.recv == nil)
}
