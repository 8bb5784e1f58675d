/*
 * What the runtimes that are CUDA's by another prefix have alike. Each vendor's
 * source includes runtime.h, declares its types and defines, before it includes
 * this file:
 *
 * VENDOR(name) - the vendor's name of a function or a type
 * PCI_BUS - the first digit of the buses that its devices are on
 *
 * With the vendor's header before it, the compiler checks every signature here.
 */
API VENDOR(Error_t) VENDOR(GetDeviceCount)(int *count)
{
	int code = enter(__func__);
	*count = code ? 0 : config.devices;
	return leave(code || config.devices ? code : 100);
}

API VENDOR(Error_t) VENDOR(DeviceGetPCIBusId)(char *id, int len, int device)
{
	int code = enter(__func__);
	snprintf(id, len, "0000:" PCI_BUS "%d:00.0", device);
	return leave(code);
}

API VENDOR(Error_t) VENDOR(SetDevice)(int device)
{
	int code = enter(__func__);
	return leave(code ? code : set_device(device));
}

API VENDOR(Error_t) VENDOR(MemGetInfo)(size_t *free_bytes, size_t *total)
{
	int code = enter(__func__);
	uint64_t a, b;
	memory_info(&a, &b);
	*free_bytes = a;
	*total = b;
	return done(code);
}

API VENDOR(Error_t) VENDOR(Malloc)(void **ptr, size_t size)
{
	int code = enter(__func__);
	devaddr p = 0;
	if (!code)
		code = allocate(&p, size);
	*ptr = (void *)p;
	return done(code);
}

API VENDOR(Error_t) VENDOR(Free)(void *ptr)
{
	int code = enter(__func__);
	return done(code ? code : release((devaddr)ptr));
}

API VENDOR(Error_t) VENDOR(StreamCreateWithFlags)(VENDOR(Stream_t) *stream, unsigned int flags)
{
	int code = enter(__func__);
	if (flags != 1)
		misuse("flags %u", flags);
	*stream = code ? NULL : (void *)new_stream();
	return done(code);
}

API VENDOR(Error_t) VENDOR(StreamDestroy)(VENDOR(Stream_t) stream)
{
	int code = enter(__func__);
	return done(code ? code : end_stream(stream));
}

API VENDOR(Error_t) VENDOR(StreamSynchronize)(VENDOR(Stream_t) stream)
{
	int code = enter(__func__);
	return done(code ? code : wait_stream(stream));
}

API VENDOR(Error_t) VENDOR(DeviceCanAccessPeer)(int *can, int device, int peer)
{
	int code = enter(__func__);
	*can = can_reach(device, peer);
	return leave(code);
}

API VENDOR(Error_t) VENDOR(DeviceEnablePeerAccess)(int peer, unsigned int flags)
{
	int code = enter(__func__);
	if (flags)
		misuse("flags %u", flags);
	return done(code ? code : enable_peer(peer));
}

API VENDOR(Error_t) VENDOR(MemcpyPeerAsync)(void *dst, int to, const void *src, int from, size_t n, VENDOR(Stream_t) stream)
{
	int code = enter(__func__);
	if (!code)
		move_peer((devaddr)dst, to, (devaddr)src, from, n, stream, to);
	return leave(code);
}

/* write_handle names an allocation in a handle. A handle is opaque, and no byte
 * of it may be dropped: the name stands at both ends. */
static void write_handle(VENDOR(IpcMemHandle_t) *handle, void *ptr)
{
	struct name name = export_memory((devaddr)ptr);
	memset(handle, 0, sizeof *handle);
	memcpy(handle->reserved, &name, sizeof name);
	memcpy(handle->reserved + 64 - sizeof name, &name, sizeof name);
}

/* open_handle opens what a handle names, unless the call is to fail by code. */
static int open_handle(int code, void **ptr, const VENDOR(IpcMemHandle_t) *handle)
{
	struct name name;
	devaddr p = 0;
	memcpy(&name, handle->reserved, sizeof name);
	if (!code && memcmp(&name, handle->reserved + 64 - sizeof name, sizeof name) != 0)
		code = ERR_HANDLE;
	if (!code)
		code = import_memory(&p, name);
	*ptr = (void *)p;
	return code;
}

API VENDOR(Error_t) VENDOR(IpcCloseMemHandle)(void *ptr)
{
	int code = enter(__func__);
	return done(code ? code : close_import((devaddr)ptr));
}

API VENDOR(Error_t) VENDOR(HostRegister)(void *ptr, size_t size, unsigned int flags)
{
	int code = enter(__func__);
	if (flags != 1)
		misuse("flags %u", flags);
	return done(code ? code : pin_memory(ptr, size));
}

API VENDOR(Error_t) VENDOR(HostUnregister)(void *ptr)
{
	int code = enter(__func__);
	return done(code ? code : unpin_memory(ptr));
}

API const char *VENDOR(GetErrorName)(VENDOR(Error_t) code);

API const char *VENDOR(GetErrorString)(VENDOR(Error_t) code)
{
	return code == ERR_OOM ? "out of memory" : VENDOR(GetErrorName)(code);
}
