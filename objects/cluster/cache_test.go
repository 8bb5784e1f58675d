package cluster

import (
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

func attrOf(ino objects.Ino) *objects.Attr {
	return &objects.Attr{Inode: metadata.Inode{Ino: ino, Size: uint64(ino) * 10}}
}

func newCache() *cache {
	c := &cache{}
	c.open(time.Minute)
	return c
}

const keep = 60_000

// TestCacheOvertaken does not cache an answer that an invalidation has overtaken.
func TestCacheOvertaken(t *testing.T) {
	for name, what := range map[string]struct {
		of          Invalidation
		attr, named bool // is cached
	}{
		"nothing":       {Invalidation{}, true, true},
		"the inode":     {Invalidation{Inos: []objects.Ino{5}}, false, false},
		"another":       {Invalidation{Inos: []objects.Ino{6}, Dirs: []objects.Ino{5}}, true, true},
		"the directory": {Invalidation{Dirs: []objects.Ino{2}}, true, false},
		"everything":    {Invalidation{All: true}, false, false},
	} {
		c := newCache()
		m := c.begin()
		c.forget(what.of)
		c.putName(m, "u", 2, "n", attrOf(5), keep)
		if _, ok := c.attr("u", 5); ok != what.attr {
			t.Errorf("%s: the attributes are remembered: %v", name, ok)
		}
		if _, ok := c.lookup("u", 2, "n"); ok != what.named {
			t.Errorf("%s: the name is remembered: %v", name, ok)
		}
		// Older entries are dropped, too.
		c = newCache()
		c.putName(c.begin(), "u", 2, "n", attrOf(5), keep)
		c.forget(what.of)
		if _, ok := c.attr("u", 5); ok != what.attr {
			t.Errorf("%s: the attributes are kept: %v", name, ok)
		}
		if _, ok := c.lookup("u", 2, "n"); ok != what.named {
			t.Errorf("%s: the name is kept: %v", name, ok)
		}
	}
}

// TestCacheLongOvertaken does not cache answers of requests that began more invalidations ago
// than are recorded.
func TestCacheLongOvertaken(t *testing.T) {
	c := newCache()
	m := c.begin()
	for i := range maxRecent {
		c.forget(Invalidation{Inos: []objects.Ino{objects.Ino(1000 + i)}})
	}
	c.putAttr(m, "u", attrOf(5), keep)
	if _, ok := c.attr("u", 5); !ok {
		t.Error("not remembered, though all that changed is known")
	}
	c.forget(Invalidation{Inos: []objects.Ino{1}})
	c.putAttr(m, "u", attrOf(6), keep)
	if _, ok := c.attr("u", 6); ok {
		t.Error("remembered, though not all that changed is known")
	}
}

// TestCacheBound never exceeds its bound.
func TestCacheBound(t *testing.T) {
	c := newCache()
	for i := range 3 * maxCached {
		c.putName(c.begin(), "u", objects.Ino(1+i%7), string(rune(i)), attrOf(objects.Ino(i+1)), keep)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	held, names := 0, 0
	for _, list := range c.attrs {
		held += len(list)
	}
	for _, list := range c.names {
		names += len(list)
	}
	if held != c.held || names != c.named || held > maxCached || names > maxCached {
		t.Errorf("%d attributes, counted as %d; %d names, counted as %d", held, c.held, names, c.named)
	}
}

// TestCacheEnds drops entries in time, and does not cache answers that the owner forbids to
// cache.
func TestCacheEnds(t *testing.T) {
	c := newCache()
	m := c.begin()
	m.at = m.at.Add(-2 * time.Second)
	c.putName(m, "u", 2, "n", attrOf(5), 1000)
	if _, ok := c.lookup("u", 2, "n"); ok {
		t.Error("remembered for too long")
	}
	c.putName(c.begin(), "u", 2, "n", attrOf(5), 0)
	if _, ok := c.lookup("u", 2, "n"); ok {
		t.Error("remembered, though the owner does not tell of changes")
	}
	c.putName(c.begin(), "u", 2, "n", attrOf(5), keep)
	if a, ok := c.lookup("u", 2, "n"); !ok || a.Size != 50 {
		t.Errorf("not remembered: %+v", a)
	}
	if _, ok := c.lookup("v", 2, "n"); ok {
		t.Error("another user is told")
	}
}

// TestPace starts with a size suitable for a slow network, and stays within bounds.
func TestPace(t *testing.T) {
	var p pace
	for range 20 {
		p.took(p.piece(), time.Millisecond)
	}
	if p.piece() != mostPiece {
		t.Errorf("quick: %d", p.piece())
	}
	p.took(1, time.Millisecond) // a short piece at the end of a file has no effect
	for range 20 {
		p.took(p.piece(), 5*time.Second)
	}
	if p.piece() != leastPiece {
		t.Errorf("slow: %d", p.piece())
	}
}
