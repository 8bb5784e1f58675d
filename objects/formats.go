package objects

import "github.com/hmcfs/hmcfs/objects/content"

// Formats returns the versions, by name, of what this program leaves beside the records. It reads no others.
func Formats() map[string]uint64 {
	return map[string]uint64{"device memory": content.KeptVersion, "bound memory": bindingVersion}
}
