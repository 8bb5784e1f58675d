package fs

import (
	"fmt"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// eventsName is the file of .hmcfs/ that is not listed, since a copy of the tree would wait
// for its end.
const eventsName = "events"

// controlEntries returns the listed files of .hmcfs/.
func controlEntries() []dirEntry {
	return []dirEntry{
		{name: "config", ino: configIno, mode: metadata.TypeRegular, offset: dotsEnd + 1},
		{name: "stats", ino: statsIno, mode: metadata.TypeRegular, offset: dotsEnd + 2},
		{name: "topology.json", ino: topoIno, mode: metadata.TypeRegular, offset: dotsEnd + 3},
		{name: "version", ino: versionIno, mode: metadata.TypeRegular, offset: dotsEnd + 4},
	}
}

// controlDir is .hmcfs/.
type controlDir struct{ base }

func (d controlDir) attr() (objects.Attr, error) { return d.attrAs(metadata.TypeDir|0o555, 2, 0) }

func (d controlDir) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	if len(name) > metadata.MaxName {
		return true, errNameTooLong
	}
	for _, e := range append(controlEntries(), dirEntry{name: eventsName, ino: eventsIno}) {
		if e.name == name {
			return true, d.fs.answer(controlIno, d.fs.provided(e.ino), out)
		}
	}
	return true, fuse.ENOENT
}

func (d controlDir) list(<-chan struct{}, *fuse.InHeader, *dirHandle) (lister, error) {
	return listFixed(controlEntries()), nil
}

// controlFile is a file of .hmcfs/. An open one keeps its content from the time of the
// open, so that reading it in pieces gives a consistent whole. It is read with direct I/O,
// so that its size need not be known in advance.
type controlFile struct{ base }

func (c controlFile) attr() (objects.Attr, error) {
	return c.attrAs(metadata.TypeRegular|0o444, 1, c.size())
}

func (c controlFile) parent() metadata.Ino { return controlIno }

func (c controlFile) open(by *fuse.Caller, flags uint32, out *fuse.OpenOut) fuse.Status {
	if isWriting(flags) || flags&unix.O_TRUNC != 0 {
		return fuse.EPERM
	}
	f := c.fs
	if c.ino == eventsIno {
		return f.openEvents(by, out)
	}
	content, err := c.content()
	if err != nil {
		return f.errs.status(err)
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	out.Fh = f.files.put(&fileHandle{content: content})
	return fuse.OK
}

func (c controlFile) content() ([]byte, error) {
	o := &c.fs.opts
	switch c.ino {
	case versionIno:
		return []byte(o.Version + "\n"), nil
	case configIno:
		return c.produce("config", o.Config)
	case statsIno:
		content, err := c.produce("stats", o.Stats)
		c.fs.statsLen.Store(uint64(len(content)))
		return content, err
	case topoIno:
		return c.produce("topology.json", o.Topology)
	default:
		return nil, nil // .hmcfs/events is a stream
	}
}

func (c controlFile) produce(name string, content func() ([]byte, error)) ([]byte, error) {
	data, err := content()
	if err != nil {
		return nil, fmt.Errorf("generate %s/%s: %w", controlName, name, err)
	}
	return data, nil
}

// size returns the size that stat shows. For stats it is the size at the last open, since
// producing the content queries every device.
func (c controlFile) size() uint64 {
	if c.ino == statsIno {
		return c.fs.statsLen.Load()
	}
	content, err := c.content()
	if err != nil {
		return 0 // opening the file reports the error
	}
	return uint64(len(content))
}
