package daemon

import (
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Settings returns the options as the admin API and `config show` present them: sizes in
// bytes, times as text.
func Settings(s *config.Settings) []adminapi.Setting {
	out := make([]adminapi.Setting, 0, len(s.List))
	for _, l := range s.List {
		out = append(out, adminapi.Setting{Name: l.Option.Name, Value: l.Option.Value(&s.Options), Source: l.Source})
	}
	return out
}

// cacheTimeout translates a timeout of 0 into the filesystem's value for no cache.
func cacheTimeout(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// warn adds a warning for the user who mounts.
func (d *Daemon) warn(text string) {
	d.warned = append(d.warned, text)
	d.log.Warn(text)
}

// warnings returns the warnings, and the reasons why the mount is slower than it could be.
func (d *Daemon) warnings() []string {
	st := d.files.Status()
	if !d.opts.NoMount && !st.Passthrough && d.opts.Settings.Passthrough != "off" {
		d.warn("host files are served by the daemon, without passthrough: " + st.PassthroughReason)
	}
	return d.warned
}
