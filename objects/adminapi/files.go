package adminapi

import "time"

// PathFiles is the prefix of the path of a file: it is followed by the name, such as
// "cuda0/dir/a", and by nothing for the root.
//
//	GET     the bytes of a file, or a FileInfo for each entry of a directory; ?offset=N and
//	        ?size=N select a part; ?stat=1 returns its FileInfo, ?attributes=1 the names of its
//	        extended attributes, ?attribute=NAME the value of one
//	PUT     makes the body the bytes of a file, which is created if it does not exist (?mode=0644);
//	        ?offset=N writes the body there instead; ?attribute=NAME sets an extended attribute
//	POST    FileRequest -> FileAnswer
//	DELETE  removes a file or an empty directory; ?attribute=NAME an extended attribute
//
// The code of an error is the name of its errno in lower case, such as "enoent".
const PathFiles = "/v1/files/"

// FileInfo describes a file. Entries of a directory have only the first three fields.
type FileInfo struct {
	Name string `json:"name"`
	// Type is "file", "dir", "symlink" or "other".
	Type string `json:"type"`
	Ino  uint64 `json:"ino"`
	// Mode has the permission bits, in octal.
	Mode  string    `json:"mode,omitempty"`
	Size  int64     `json:"size,omitempty"`
	UID   uint32    `json:"uid,omitempty"`
	GID   uint32    `json:"gid,omitempty"`
	Links uint64    `json:"links,omitempty"`
	MTime time.Time `json:"mtime,omitzero"`
}

// FileRequest changes names. Exactly one field is set.
type FileRequest struct {
	// Copy and Rename are the name of the target.
	Copy   string `json:"copy,omitempty"`
	Rename string `json:"rename,omitempty"`
	// Mkdir is the mode of a new directory, in octal.
	Mkdir string `json:"mkdir,omitempty"`
}

// FileAnswer is the answer to a change of a file.
type FileAnswer struct {
	// Bytes is the number of bytes that were written or copied.
	Bytes uint64 `json:"bytes,omitempty"`
}
