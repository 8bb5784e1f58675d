package daemon

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// protocolOfHolder names the format of the messages of the holder, which continues in the program that has started it.
const protocolOfHolder = "messages of the holder"

// formats returns the formats of everything that a daemon leaves to the one that follows it.
func formats() map[string]adminapi.Format {
	all := map[string]adminapi.Format{}
	for name, newest := range metadata.Formats() {
		all["record: "+name] = adminapi.Format{Oldest: 1, Newest: newest}
	}
	only := map[string]uint64{"state of the mount": fs.HeldVersion, protocolOfHolder: holder.Protocol, "journal of the records": badgerkv.JournalVersion}
	maps.Copy(only, objects.Formats())
	for name, version := range only {
		all[name] = adminapi.Format{Oldest: version, Newest: version}
	}
	return all
}

// canFollow returns an error unless a program reads everything that is left in the formats.
func canFollow(left map[string]adminapi.Format, program adminapi.Version) error {
	for _, name := range slices.Sorted(maps.Keys(left)) {
		reads, known := program.Formats[name]
		switch is := left[name].Newest; {
		case !known:
			return fmt.Errorf("version %s can't continue this mount: it does not say that it reads the format %q", program.Version, name)
		case is < reads.Oldest || is > reads.Newest:
			return fmt.Errorf("version %s can't continue this mount: it reads versions %d to %d of the format %q, and the mount has version %d",
				program.Version, reads.Oldest, reads.Newest, name, is)
		}
	}
	return nil
}
