package fabric

import (
	"errors"
	"sync"
)

// copies holds the fabrics that Duplicate has made of one fabric. Closing it closes them.
type copies struct {
	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	all map[Fabric]struct{}
}

// add keeps a copy until it is removed.
//
// Errors: ErrClosed; the copy is then closed.
func (c *copies) add(f Fabric) error {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		if c.all == nil {
			c.all = map[Fabric]struct{}{}
		}
		c.all[f] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		return errors.Join(ErrClosed, f.Close())
	}
	return nil
}

func (c *copies) remove(f Fabric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, f)
}

// close closes all copies. A copy added later is closed at once.
func (c *copies) close() error {
	c.mu.Lock()
	all := c.all
	c.closed, c.all = true, nil
	c.mu.Unlock()
	var errs []error
	for f := range all {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
