package randomops

// slots bounds the handles, and the maps, of a program.
const slots = 8

// The kinds of arguments.
const (
	argHandle = "handle"
	argMap    = "map"
	argPath   = "path"
	argMode   = "mode"
	argWord   = "word"
	argOff    = "offset"
	argLen    = "length"
	argSeed   = "seed"
)

// Verb describes an operation.
type Verb struct {
	// Args are the kinds of the arguments.
	Args string
	// Doc describes the operation in words.
	Doc string

	do func(r *runner, o Op) Step
}

// Verbs returns all operations by name.
func Verbs() map[string]Verb {
	return map[string]Verb{
		"open":     {"handle path word mode", "open; the word is r, w or rw, with creat, excl, trunc, append, direct behind commas", doOpen},
		"close":    {"handle", "close a handle", doClose},
		"write":    {"handle offset length seed", "pwrite", doWrite},
		"put":      {"handle length seed", "write at the handle's position, or at the end with append", doPut},
		"read":     {"handle offset length", "pread", doRead},
		"get":      {"handle length", "read at the handle's position", doGet},
		"seek":     {"handle offset", "set the handle's position", doSeek},
		"truncate": {"handle length", "ftruncate", doTruncate},
		"cut":      {"path length", "truncate by path", doCut},
		"alloc":    {"handle offset length", "fallocate", doAlloc},
		"reserve":  {"handle offset length", "fallocate, the size as it was", doReserve},
		"punch":    {"handle offset length", "fallocate: punch a hole", doPunch},
		"zero":     {"handle offset length", "fallocate: zero a range", doZero},
		"zerokeep": {"handle offset length", "fallocate: zero a range, the size as it was", doZeroKeep},
		"copy":     {"handle offset handle offset length", "copy_file_range", doCopy},
		"map":      {"map handle length", "mmap, shared", doMap},
		"store":    {"map offset length seed", "write into a map, inside the file's size", doStore},
		"load":     {"map offset length", "read from a map, inside the file's size", doLoad},
		"msync":    {"map", "msync a map", doMsync},
		"unmap":    {"map", "munmap", doUnmap},
		"fsync":    {"handle", "fsync", doFsync},
		"holes":    {"handle", "follow SEEK_DATA and SEEK_HOLE", doHoles},
		"fstat":    {"handle", "fstat", doFstat},
		"stat":     {"path", "lstat", doStat},
		"chmod":    {"path mode", "chmod", doChmod},
		"fchmod":   {"handle mode", "fchmod", doFchmod},
		"utimens":  {"path seed seed", "utimensat, in nanoseconds", doUtimens},
		"setxattr": {"path word seed", "setxattr", doSetXattr},
		"delxattr": {"path word", "removexattr", doDelXattr},
		"mkdir":    {"path mode", "mkdir", doMkdir},
		"rmdir":    {"path", "rmdir", doRmdir},
		"symlink":  {"path word", "symlink to the word", doSymlink},
		"link":     {"path path", "link", doLink},
		"unlink":   {"path", "unlink", doUnlink},
		"rename":   {"path path word", "rename; the word is replace, noreplace or exchange", doRename},
		"move":     {"path path", "mv of a closed file with one name, perhaps to another device", doMove},
		"tree":     {"", "all that can be seen below A and B", doTree},
		"crash":    {"", "kill the daemon and mount again, where that keeps the files; all handles and maps are gone", doCrash},
	}
}
