package cluster

import (
	"context"
	"fmt"
	"sort"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// pageEntries is the number of entries requested at once. The owner sends fewer if their names
// and attributes are long.
const pageEntries = 2048

// Dir is an open directory. It must not be used concurrently.
type Dir struct {
	n   *Node
	who objects.Caller
	ino objects.Ino
	// page has the entries of the last answer, after the cookie begin.
	page  []Entry
	begin metadata.Cookie
	// asked is true if there is a page, end if no entries follow it.
	asked, end bool
}

// OpenDir opens a directory. It sends no request yet.
func (n *Node) OpenDir(who objects.Caller, ino objects.Ino) *Dir {
	return &Dir{n: n, who: who, ino: ino}
}

// After returns the entries after a cookie, none at the end. It keeps the last page, so that
// continuing within it costs no request, and starts over at cookie 0.
func (d *Dir) After(ctx context.Context, at metadata.Cookie) ([]Entry, error) {
	if d.asked && at != 0 && at >= d.begin {
		// Entries are ordered by their cookies.
		i := sort.Search(len(d.page), func(i int) bool { return d.page[i].Cookie > at })
		if i < len(d.page) || d.end {
			return d.page[i:], nil
		}
	}
	if err := d.ask(ctx, at); err != nil {
		return nil, err
	}
	return d.page, nil
}

// ask reads the page after a cookie.
func (d *Dir) ask(ctx context.Context, at metadata.Cookie) error {
	d.asked, d.page = false, nil
	n := d.n
	m := n.cache.begin()
	out, err := query[proto.ReadDirAnswer](ctx, n, proto.MethodReadDir, &proto.ReadDirAsk{
		Cred: credToProto(d.who), Dir: uint64(d.ino), Cookie: uint64(at), Limit: pageEntries,
	})
	if err != nil {
		return err
	}
	if len(out.Entries) > pageEntries {
		return fmt.Errorf("node %s sent %d entries, but at most %d were requested: %w", n.name, len(out.Entries), pageEntries, proto.ErrBody)
	}
	page := make([]Entry, 0, len(out.Entries))
	names := make(map[string]struct{}, len(out.Entries))
	last := at
	for i := range out.Entries {
		e, failure := entryFromProto(&out.Entries[i])
		if failure != nil {
			return fmt.Errorf("node %s: %w", n.name, failure)
		}
		if e.Cookie <= last {
			return fmt.Errorf("node %s: entry %q is out of order: %w", n.name, e.Name, proto.ErrBody)
		}
		if e.Ino == d.ino {
			return fmt.Errorf("node %s: directory %d contains itself: %w", n.name, d.ino, proto.ErrBody)
		}
		last = e.Cookie
		names[e.Name] = struct{}{}
		page = append(page, e)
	}
	if len(names) < len(page) {
		return fmt.Errorf("node %s: directory %d has a duplicate name: %w", n.name, d.ino, proto.ErrBody)
	}
	if len(page) == 0 && !out.End {
		return fmt.Errorf("node %s: an empty page of a directory that is not the last: %w", n.name, proto.ErrBody)
	}
	user := userKey(d.who)
	for i := range page {
		if e := &page[i]; e.Attr != nil {
			m.order = out.Entries[i].Attr.Order
			n.noteSize(m, e.Attr)
			n.cache.putName(m, user, d.ino, e.Name, e.Attr, out.Entries[i].Attr.Keep)
		}
	}
	d.asked, d.begin, d.page, d.end = true, at, page, out.End
	return nil
}
