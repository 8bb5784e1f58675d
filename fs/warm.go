package fs

import "runtime"

// warm leaves memory to go-fuse for the buffers of its first requests that the kernel does not have
// to make first. A process that is killed while the kernel copies a request into a page that is not
// there makes the request fail with EIO, where it is repeated otherwise (fuse_dev_do_read, which
// ends a request that it could not copy; the fault ends when a fatal signal is pending).
func warm(request int) {
	const buffers, page = 24, 4096
	var all [buffers][]byte
	for i := range all {
		all[i] = make([]byte, request+2*page)
		for at := 0; at < len(all[i]); at += page {
			all[i][at] = 1
		}
	}
	runtime.KeepAlive(&all)
	runtime.GC()
}
