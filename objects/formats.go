package objects

import "github.com/hmcfs/hmcfs/objects/content"

// Formats returns the versions, by name, of what this program leaves beside the records, and in records whose content
// package metadata does not know. It reads no others.
func Formats() map[string]uint64 {
	return map[string]uint64{
		"device memory": content.KeptVersion, "bound memory": bindingVersion, "memory of sessions": sessionMark, "receipts": receiptVersion,
	}
}
