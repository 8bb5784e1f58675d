package cluster

import (
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// openAtOnce is the number of files of one node that are opened again at once.
const openAtOnce = 8

// later holds the files that an earlier daemon of this node had open, until they are opened.
type later struct {
	mu sync.Mutex
	// +checklocks:mu
	files map[*Node][]*meshFile
}

// FileLater is Open for a file that an earlier daemon of this node had open. It sends no request: the
// file is opened by the first call of it, or by OpenLater.
//
// Errors: ErrStale.
func (m *Mesh) FileLater(who objects.Caller, ino objects.Ino, want objects.Permission) (objects.OpenFile, error) {
	p, err := m.others.find(ino)
	switch {
	case err != nil:
		return nil, err
	case p.isTop():
		return nil, metadata.ErrIsDir
	}
	f := &meshFile{at: ino, File: &File{n: p.Node, who: who, user: userKey(who), ino: p.ino, access: want, open: p.inos.use(p.ino)}}
	f.foreign.Store(true) // until its owner says otherwise
	p.files.add(f.File)
	m.later.mu.Lock()
	defer m.later.mu.Unlock()
	if m.later.files == nil {
		m.later.files = map[*Node][]*meshFile{}
	}
	m.later.files[p.Node] = append(m.later.files[p.Node], f)
	return f, nil
}

// DirLater is OpenDir for a directory that an earlier daemon of this node had open. It sends no request.
//
// Errors: ErrStale.
func (m *Mesh) DirLater(who objects.Caller, dir objects.Ino) (objects.Dir, error) {
	p, err := m.others.find(dir)
	if err != nil {
		return nil, err
	}
	return &meshDir{place: p, dir: p.OpenDir(who, p.ino)}, nil
}

// OpenLater opens the files of FileLater in the background: their owners keep those that have no name
// for a while only.
func (m *Mesh) OpenLater() {
	m.later.mu.Lock()
	defer m.later.mu.Unlock()
	for n, files := range m.later.files {
		queue := make(chan *meshFile, len(files))
		for _, f := range files {
			queue <- f
		}
		close(queue)
		for range min(openAtOnce, len(files)) {
			m.cluster.Go(func() {
				for f := range queue {
					f.openNow()
				}
			})
		}
		delete(m.later.files, n)
	}
}

// openNow opens the file, unless it is open or closed.
func (f *meshFile) openNow() {
	ctx := f.n.c.life
	_, _, err := f.opened(ctx)
	if err != nil {
		f.n.c.log.Debug("a file that was open could not be opened again", zap.String("node", string(f.n.name)), zap.Error(err))
		return
	}
	// The answer to the open included the attributes, so the node is not asked again.
	a, err := f.n.Attr(ctx, f.who, f.ino)
	f.foreign.Store(err != nil || a.State == objects.StateBound)
}
