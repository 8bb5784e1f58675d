package fs

import (
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
)

// controlContent produces what a file of .hmcfs/ holds now. A file keeps what
// it held when it was opened, so that reading it in pieces gives one whole.
func (f *filesystem) controlContent(ino metadata.Ino) ([]byte, error) {
	switch ino {
	case versionIno:
		return []byte(f.opts.Version + "\n"), nil
	case configIno:
		return f.produce("config", f.opts.Config)
	case statsIno:
		content, err := f.produce("stats", f.opts.Stats)
		f.statsLen.Store(uint64(len(content)))
		return content, err
	case topoIno:
		return f.produce("topology.json", f.opts.Topology)
	case eventsIno:
		return nil, nil // it is a stream
	default:
		return nil, metadata.ErrIsDir
	}
}

func (f *filesystem) produce(name string, content func() ([]byte, error)) ([]byte, error) {
	data, err := content()
	if err != nil {
		return nil, fmt.Errorf("content of %s/%s: %w", controlName, name, err)
	}
	return data, nil
}

// controlSize is the size that stat shows. That of stats is the one it had
// when it was last opened, since producing it asks every device.
func (f *filesystem) controlSize(ino metadata.Ino) uint64 {
	if ino == statsIno {
		return f.statsLen.Load()
	}
	content, err := f.controlContent(ino)
	if err != nil {
		return 0 // opening it reports the error
	}
	return uint64(len(content))
}
