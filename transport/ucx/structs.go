package ucx

// The structures that the library receives, laid out as in ucp.h. Each starts
// with the mask of the fields that are set, so that a later library, whose
// structures are longer, does not read beyond the end.

type contextParams struct {
	fieldMask       uint64
	features        uint64
	requestSize     uint64
	requestInit     uintptr
	requestCleanup  uintptr
	tagSenderMask   uint64
	mtWorkersShared int32
	_               int32
	estimatedEps    uint64
	estimatedPPN    uint64
	name            uintptr
}

type contextAttr struct {
	fieldMask   uint64
	requestSize uint64
	threadMode  int32
	_           int32
	memoryTypes uint64
	name        [entityNameMax]byte
}

type workerParams struct {
	fieldMask   uint64
	threadMode  int32
	_           int32
	cpuMask     [cpuSetWords]uint64
	events      uint32
	_           uint32
	userData    uintptr
	eventFD     int32
	_           int32
	flags       uint64
	name        uintptr
	amAlignment uint64
	clientID    uint64
}

type socketAddress struct {
	addr   uintptr
	length uint32
	_      uint32
}

type endpointParams struct {
	fieldMask    uint64
	address      uintptr
	errMode      int32
	_            int32
	errHandler   uintptr
	errArg       uintptr
	userData     uintptr
	flags        uint32
	_            uint32
	sockAddr     socketAddress
	connRequest  uintptr
	name         uintptr
	localAddress socketAddress
}

type memMapParams struct {
	fieldMask  uint64
	address    uintptr
	length     uint64
	flags      uint32
	prot       uint32
	memoryType int32
	_          int32
}

type requestParam struct {
	opAttrMask  uint32
	flags       uint32
	request     uintptr
	callback    uintptr
	datatype    uint64
	userData    uintptr
	replyBuffer uintptr
	memoryType  int32
	_           int32
	recvInfo    uintptr
	memh        uintptr
}

type messageHandler struct {
	fieldMask uint64
	id        uint32
	flags     uint32
	call      uintptr
	arg       uintptr
}

type messageParam struct {
	attributes uint64
	_          uintptr // the endpoint to reply by
}
