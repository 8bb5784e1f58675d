package fs

import "runtime"

const (
	// firstRequests is the number of requests that a new mount may get at once before it has run for a while.
	firstRequests = 6
	// backlog is the number of those that may wait for a mount that is continued.
	backlog = 24
)

// warm leaves memory to go-fuse for the buffers of its first requests that the kernel does not have
// to make first. A process that is killed while the kernel copies a request into a page that is not
// there makes the request fail with EIO, where it is repeated otherwise (fuse_dev_do_read, which
// ends a request that it could not copy; the fault ends when a fatal signal is pending).
func warm(request, buffers int) {
	const page = 4096
	all := make([][]byte, buffers)
	for i := range all {
		all[i] = make([]byte, request+2*page)
		for at := 0; at < len(all[i]); at += page {
			all[i][at] = 1
		}
	}
	runtime.KeepAlive(&all)
	runtime.GC()
}
